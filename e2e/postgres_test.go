package e2e

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// postgres is a PostgreSQL that the distribution has installed.
type postgres struct{ bin string }

// installedPostgres is the newest one.
func installedPostgres(t *testing.T) postgres {
	t.Helper()
	nettest.Need(t, "setpriv")
	all, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	require.NoError(t, err)
	require.NotEmpty(t, all, "PostgreSQL's programs are not installed (scripts/deps.sh installs them)")
	slices.Sort(all)
	return postgres{filepath.Dir(all[len(all)-1])}
}

func (p postgres) program(name string) string { return filepath.Join(p.bin, name) }

// serve runs a server on a host, with a cluster of its own, until the test
// ends. PostgreSQL runs as no root: the package has made a user for it.
func (p postgres) serve(t *testing.T, host *nettest.Host, addrs ...string) {
	t.Helper()
	dir := t.TempDir()
	owner, err := user.Lookup("postgres")
	require.NoError(t, err)
	uid, err := strconv.Atoi(owner.Uid)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chown(dir, uid, -1))
	as := func(name string, args ...string) []string {
		return append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", p.program(name)}, args...)
	}
	data := filepath.Join(dir, "data")
	host.Output(t, "setpriv", as("initdb", "--pgdata="+data, "--no-sync", "--auth=trust", "--no-locale")...)
	require.NoError(t, os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte("host all all all trust\n"), 0o644))
	daemon(t, host, "setpriv", as("postgres", "-D", data, "-p", "5432", "-k", "", "-F",
		"-h", strings.Join(addrs, ","), "-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap")...)
	eventually(t, func() bool { // it listens before it is
		return runToEnd(t, host, nil, p.program("pg_isready"), "-h", addrs[0], "-p", "5432").code == 0
	}, saying("PostgreSQL to be ready"))
}

func TestPostgreSQLAndPgbench(t *testing.T) {
	t.Parallel()
	pg := installedPostgres(t)
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		v4, v6 := bed.Back.Addr(service.IPv4).String(), bed.Back.Addr(service.IPv6).String()
		pg.serve(t, bed.Back, v4, v6)
		o := object{name: "postgres", clusterIPs: []string{"10.96.0.20", "fd96::20"},
			ports:     []port{{"postgres", service.TCP, 5432, 0}},
			endpoints: map[string][]string{"postgres": {v4 + ":5432", "[" + v6 + "]:5432"}}}
		lead.start(t, bed.Node, manifest(o))
		requirePort(t, bed.Client, "10.96.0.20:5432")
		bench := func(from *nettest.Host, addr string, args ...string) string {
			return from.Output(t, pg.program("pgbench"), append([]string{"-h", addr, "-p", "5432", "-U", "postgres"}, append(args, "postgres")...)...)
		}
		bench(bed.Client, "10.96.0.20", "--initialize", "--quiet") // a COPY of 100,000 rows

		// Many transactions on each of five connections, then a connection for
		// each transaction.
		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			for _, addr := range o.clusterIPs {
				for _, args := range [][]string{{"--client=5", "--transactions=20"}, {"--client=5", "--transactions=2", "--connect"}} {
					out := bench(from, addr, append(args, "--no-vacuum")...)
					assert.Regexp(t, `transactions actually processed: (100/100|10/10)\n`, out, "%s from %s", addr, from.Name)
					assert.Contains(t, out, "number of failed transactions: 0 ", "%s from %s", addr, from.Name)
				}
			}
		}
		// What each transaction added in four tables is there.
		sums := bed.Client.Output(t, pg.program("psql"), "-h", "fd96::20", "-p", "5432", "-U", "postgres", "-At", "-c",
			"select count(*), (select sum(abalance) from pgbench_accounts) - sum(delta), "+
				"(select sum(tbalance) from pgbench_tellers) - sum(delta), (select sum(bbalance) from pgbench_branches) - sum(delta) "+
				"from pgbench_history", "postgres")
		assert.Equal(t, "660|0|0|0\n", sums)
	})
}
