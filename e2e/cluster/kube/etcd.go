package main

import (
	"errors"
	"flag"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd serves on loopback until a signal comes.
func runEtcd() error {
	dir := flag.String("data-dir", "", "where it keeps what it is given")
	flag.Parse()
	c := embed.NewConfig()
	c.Dir = *dir
	clients, peers := url.URL{Scheme: "http", Host: "127.0.0.1:2379"}, url.URL{Scheme: "http", Host: "127.0.0.1:2380"}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.LogLevel = "warn"
	c.UnsafeNoFsync = true // the cluster does not outlive the machine
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		return errors.New("etcd is not ready after a minute")
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	<-signals
	return nil
}
