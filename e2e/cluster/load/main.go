package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	tcp := flag.String("tcp", "", "the addresses for connections, with ports, comma-separated; each in turn")
	udp := flag.String("udp", "", "the same for datagrams")
	flag.StringVar(&o.during, "during", "", "what happens to the cluster meanwhile, for the report")
	flag.StringVar(&o.from, "from", "", "where this client is, for the report")
	flag.IntVar(&o.perSecond, "rate", 40, "short connections a second, and half as many senders of a datagram")
	flag.IntVar(&o.long, "long", 6, "long connections, and as many long senders")
	flag.DurationVar(&o.patience, "patience", 3*time.Second, "how long a connection, and an answer, may take")
	flag.Parse()
	o.tcp, o.udp = strings.Split(*tcp, ","), strings.Split(*udp, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	counted := run(ctx, o)
	stop()
	if err := json.NewEncoder(os.Stdout).Encode(counted); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
