package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator/proof"
)

// namespaceKeyFlags are where the keys of the namespace are.
type namespaceKeyFlags struct{ file string }

func (k *namespaceKeyFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&k.file, "namespace-keys", "", "YAML file with the keys of the namespace, the same for all instances: by them they know who acted, and that an agent's reply is one; it is read again when it changes")
}

// open reads the keys, and again when the file changes, until stop is called. Without a file
// there are none.
func (k *namespaceKeyFlags) open(metrics *prometheus.Registry, log *slog.Logger) (keys func() *proof.Keys, stop func(), _ error) {
	if k.file == "" {
		return nil, func() {}, nil
	}
	namespace, err := identity.OpenNamespace(k.file, log)
	if err != nil {
		return nil, nil, err
	}
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "waybill_namespace_keys_wrong", Help: "1 if the file of the namespace's keys is wrong as it is now, so that what it said before counts on.",
	}, func() float64 {
		if namespace.Wrong() {
			return 1
		}
		return 0
	}))
	ctx, cancel := context.WithCancel(context.Background())
	go namespace.Watch(ctx) // nobody waits for its end: the file may hang
	return namespace.Keys, cancel, nil
}
