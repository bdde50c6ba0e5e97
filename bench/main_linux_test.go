package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/bench/bed"
	"github.com/userspace-proxy/userspace-proxy/bench/load"
)

func TestParse(t *testing.T) {
	t.Parallel()
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	assert.Len(t, o.rows, len(allRows()))
	assert.Len(t, o.paths, len(allPaths("")))
	assert.False(t, o.partial)

	o, err = parse([]string{"-only", "bulk,idle", "-paths", "own,haproxy", "-rounds", "1", "-duration", "300ms"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []string{"bulk-1", "bulk-4", "idle"}, keys(o.rows))
	assert.Equal(t, []string{haproxyKey, ownKey}, pathKeys(o.paths))
	assert.True(t, o.partial)

	for _, args := range [][]string{
		{"-only", "nothing"}, {"-only", "bulk,"}, {"-paths", "own,none,juggler"}, {"-rounds", "0"}, {"-duration", "-1s"}, {"idle"}, {"-x"},
	} {
		_, err := parse(args, io.Discard)
		assert.Error(t, err, args)
	}
}

// TestConfigurations: the committed configurations have the addresses and ports
// of this program, and every endpoint of the bed.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, writeConfigurations(dir))
	for file, key := range map[string]string{
		"haproxy.cfg": haproxyKey, "nginx.conf": nginxKey, "dnat.nft": "dnat", "services.yaml": ownKey, "none.yaml": "none",
	} {
		text, err := os.ReadFile(dir + "/" + file)
		require.NoError(t, err)
		for _, p := range allPaths("") {
			found := regexp.MustCompile(`\b` + regexp.QuoteMeta(p.addr.String()) + `\b`).Match(text)
			assert.Equal(t, p.key == key, found, "%s in %s", p.addr, file)
		}
		for _, e := range bed.Endpoints() {
			assert.Regexp(t, `\b`+regexp.QuoteMeta(e.String())+`\b`, string(text), file)
		}
		ports := []int{echoPort, datagramsPort, sinkPort, newFlowsPort}
		switch key {
		case "dnat": // of any port
			continue
		case haproxyKey:
			ports = []int{echoPort, sinkPort}
		}
		for _, port := range ports {
			assert.Contains(t, string(text), strconv.Itoa(port), file)
		}
	}
}

// TestUsage: a process is charged for what its children use.
func TestUsage(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; exec sleep 600' & wait`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd: cmd, done: make(chan struct{})}
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)

	pids, err := withChildren(strconv.Itoa(cmd.Process.Pid))
	require.NoError(t, err)
	assert.Len(t, pids, 2)
	cpu, err := p.cpu()
	require.NoError(t, err)
	assert.Positive(t, cpu)
	held, err := p.holds()
	require.NoError(t, err)
	assert.Positive(t, held.memory)
	assert.GreaterOrEqual(t, held.descriptors, 6)

	for _, pid := range pids {
		id, err := strconv.Atoi(pid)
		require.NoError(t, err)
		process, err := os.FindProcess(id)
		require.NoError(t, err)
		require.NoError(t, process.Kill())
	}
	_ = cmd.Wait()
	close(p.done)
	p.log = os.DevNull
	_, err = p.cpu()
	assert.ErrorContains(t, err, "ended")
}

// TestBeLoad: the lines between this program and itself on another host.
func TestBeLoad(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	var r load.Result
	for d := 20 * time.Millisecond; r.Ops == 0 && d < time.Minute; d *= 4 { // a busy machine needs more
		job, err := json.Marshal(load.Job{Mode: load.PingPong, Addr: netip.MustParseAddrPort(l.Addr().String()), Flows: 3, Size: 64, Duration: d})
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, beLoad(strings.NewReader(string(job)+"\n"+goLine+"\n"), &out))
		first, rest, _ := strings.Cut(out.String(), "\n")
		require.Equal(t, readyLine, first)
		require.NoError(t, json.Unmarshal([]byte(rest), &r))
	}
	assert.Positive(t, r.Ops)

	assert.Error(t, beLoad(strings.NewReader("{}\n"), io.Discard))
	assert.Error(t, beLoad(strings.NewReader(""), io.Discard))
}

func TestParseCalls(t *testing.T) {
	t.Parallel()
	const table = `200,,syscalls:sys_enter_write,1,100.00,,
<not counted>,,syscalls:sys_enter_open,0,100.00,,
201,,syscalls:sys_enter_read,1,100.00,,
0,,syscalls:sys_enter_close,1,100.00,,

Events disabled
`
	assert.Equal(t, "4.01 (read 2.01, write 2.00)", inWords(parseCalls(table, 100)))
	assert.Equal(t, "0.00 ()", inWords(parseCalls("", 100)))
}
