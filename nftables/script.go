package nftables

import (
	"fmt"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// verb is what a command does.
type verb string

const (
	add    verb = "add"
	remove verb = "delete"
)

// command is one line of an nft script. Exactly one of its objects is set; a
// command without one is about the table itself.
type command struct {
	verb   verb
	family service.Family
	table  string

	set     *set
	chain   *chain
	rule    *rule
	element *element
}

// Render is the nft script that makes our tables what the redirects ask for,
// whatever they were before: what the first Sync of a Runner applies. It is
// pure, sorted and for `nft -f`, which takes a script as one transaction.
//
// Lines that begin with # are for people. They name redirects that cannot be
// expressed, and a configuration that is not valid, which comes to no command.
func Render(c Config, redirects []service.Redirect) string {
	c = c.Defaults()
	var s strings.Builder
	if err := c.Validate(); err != nil {
		writeFaults(&s, err)
		return s.String()
	}
	elements, err := c.elements(redirects)
	if err != nil {
		writeFaults(&s, err)
	}
	for _, cmd := range c.replace(elements) {
		s.WriteString(cmd.String())
	}
	return s.String()
}

// writeFaults writes an error as comment lines.
func writeFaults(s *strings.Builder, err error) {
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(s, "# %s\n", line)
		}
	}
}

// replace makes the tables of all served families anew. A table is added
// before it is deleted because deleting one that does not exist is an error,
// and `destroy` is newer than the nft of many nodes.
func (c Config) replace(elements map[key]element) []command {
	var script []command
	for _, f := range service.Families() {
		if _, served := c.Listen[f]; !served {
			continue
		}
		cmd := func(v verb) command { return command{verb: v, family: f, table: c.Table} }
		script = append(script, cmd(add), cmd(remove), cmd(add))
		t := c.table(f)
		for i := range t.sets {
			o := cmd(add)
			o.set = &t.sets[i]
			script = append(script, o)
		}
		for i := range t.chains {
			o := cmd(add)
			o.chain = &t.chains[i]
			script = append(script, o)
		}
		for i := range t.rules {
			o := cmd(add)
			o.rule = &t.rules[i]
			script = append(script, o)
		}
	}
	return append(script, c.elementCommands(add, sorted(elements))...)
}

// change turns one state of the elements into another. What differs is deleted
// and added: nft has no other way to change an element, and its counter starts
// anew.
func (c Config) change(from, to map[key]element) []command {
	gone, come := make(map[key]element), make(map[key]element)
	known := 0
	for k, e := range to {
		before, was := from[k]
		if was {
			known++
		}
		if before != e {
			come[k] = e
		}
		if was && before != e {
			gone[k] = before
		}
	}
	if known < len(from) { // else nothing went, as nearly always
		for k, e := range from {
			if _, stays := to[k]; !stays {
				gone[k] = e
			}
		}
	}
	return append(c.elementCommands(remove, sorted(gone)), c.elementCommands(add, sorted(come))...)
}

func (c Config) elementCommands(v verb, elements []element) []command {
	script := make([]command, len(elements))
	for i := range elements {
		script[i] = command{verb: v, family: elements[i].family(), table: c.Table, element: &elements[i]}
	}
	return script
}

// String is the command as nft reads it, one line.
func (c command) String() string {
	w := wordsOf(c.family)
	switch {
	case c.set != nil:
		return fmt.Sprintf("%s %s %s %s %s { type %s ; }\n", c.verb, c.set.kind(), w.nft, c.table, c.set.name, c.set.typ())
	case c.chain != nil:
		return fmt.Sprintf("%s chain %s %s %s%s\n", c.verb, w.nft, c.table, c.chain.name, c.chain.hooked())
	case c.rule != nil:
		return fmt.Sprintf("%s rule %s %s %s %s comment %q\n", c.verb, w.nft, c.table, c.rule.chain, c.rule.match, c.rule.why)
	case c.element != nil:
		return fmt.Sprintf("%s element %s %s %s { %s }\n", c.verb, w.nft, c.table, c.element.set, c.element.body(c.verb))
	default:
		return fmt.Sprintf("%s table %s %s\n", c.verb, w.nft, c.table)
	}
}

func (s set) kind() string {
	if s.value != "" {
		return "map"
	}
	return "set"
}

// typ is written with `type`, not `typeof`, which nft cannot read back for
// these maps; a counter has its place after it.
func (s set) typ() string {
	t := s.key
	if s.value != "" {
		t += " : " + s.value
	}
	if s.counted {
		t += " ; counter"
	}
	if s.interval {
		t += " ; flags interval"
	}
	return t
}

func (c chain) hooked() string {
	if c.hook == "" {
		return ""
	}
	return fmt.Sprintf(" { type %s hook %s priority %d ; policy accept ; }", c.kind, c.hook, c.priority)
}

func (e element) body(v verb) string {
	s := strings.Join(e.match(), " . ")
	if v == remove {
		return s
	}
	if comment := e.comment(); comment != "" {
		s += fmt.Sprintf(" comment %q", comment)
	}
	if value := e.value(); len(value) > 0 {
		s += " : " + strings.Join(value, " . ")
	}
	return s
}
