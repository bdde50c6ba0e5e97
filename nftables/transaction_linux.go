//go:build linux && !portable

package nftables

import (
	"strconv"

	"sigs.k8s.io/knftables"
)

// fill puts commands into a transaction. The transaction's text equals the
// commands' own, which a test asserts: Render shows what a Runner does.
func fill(tx *knftables.Transaction, script []command) {
	for _, c := range script {
		if c.verb == remove {
			tx.Delete(c.object())
		} else {
			tx.Add(c.object())
		}
	}
}

func (c command) object() knftables.Object {
	family := knftables.Family(wordsOf(c.family).nft)
	switch {
	case c.set != nil && c.set.value != "":
		return &knftables.Map{Family: family, Table: c.table, Name: c.set.name, Type: c.set.typ()}
	case c.set != nil:
		return &knftables.Set{Family: family, Table: c.table, Name: c.set.name, Type: c.set.typ()}
	case c.chain != nil:
		return c.chain.object(family, c.table)
	case c.rule != nil:
		return &knftables.Rule{Family: family, Table: c.table, Chain: c.rule.chain, Rule: c.rule.match, Comment: &c.rule.why}
	case c.element != nil:
		return c.element.object(family, c.table)
	default:
		return &knftables.Table{Family: family, Name: c.table}
	}
}

func (c *chain) object(family knftables.Family, table string) *knftables.Chain {
	o := &knftables.Chain{Family: family, Table: table, Name: c.name}
	if c.hook != "" {
		o.Type = knftables.PtrTo(knftables.BaseChainType(c.kind))
		o.Hook = knftables.PtrTo(knftables.BaseChainHook(c.hook))
		o.Priority = knftables.PtrTo(knftables.BaseChainPriority(strconv.Itoa(c.priority)))
		o.Policy = knftables.PtrTo(knftables.AcceptPolicy)
	}
	return o
}

func (e *element) object(family knftables.Family, table string) *knftables.Element {
	o := &knftables.Element{Family: family, Table: table, Key: e.match(), Value: e.value()}
	if comment := e.comment(); comment != "" {
		o.Comment = &comment
	}
	if e.kind.isSet() {
		o.Set = e.set
	} else {
		o.Map = e.set
	}
	return o
}
