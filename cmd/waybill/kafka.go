package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/waybill-dev/waybill/events"
)

// kafkaFlags say where Kafka is and how to get in.
type kafkaFlags struct {
	brokers        []string
	namespace      string
	tls            bool
	ca, cert, key  string
	mechanism      oneOf
	user, password string
}

func addNamespace(flags *pflag.FlagSet, namespace *string) {
	flags.StringVar(namespace, "namespace", events.DefaultNamespace, "prefix of the topics")
}

func (k *kafkaFlags) add(flags *pflag.FlagSet) {
	k.mechanism = oneOf{allowed: []string{"plain", "scram-sha-256", "scram-sha-512"}}
	flags.StringSliceVar(&k.brokers, "brokers", []string{"127.0.0.1:9092"}, "addresses of some Kafka brokers, host:port, with commas")
	addNamespace(flags, &k.namespace)
	flags.BoolVar(&k.tls, "tls", false, "connect with TLS")
	flags.StringVar(&k.ca, "tls-ca", "", "PEM file with the authorities to trust, instead of the system's; implies --tls")
	flags.StringVar(&k.cert, "tls-cert", "", "PEM file with the client's certificate; implies --tls")
	flags.StringVar(&k.key, "tls-key", "", "PEM file with the client's key")
	flags.Var(&k.mechanism, "sasl-mechanism", "plain, scram-sha-256 or scram-sha-512")
	flags.StringVar(&k.user, "sasl-user", "", "SASL user")
	flags.StringVar(&k.password, "sasl-password", "", "SASL password; better in the environment or the configuration file")
}

// options are those of every Kafka client.
func (k *kafkaFlags) options() ([]kgo.Opt, error) {
	if len(k.brokers) == 0 {
		return nil, usageError{errors.New("no brokers: name some with --brokers or WAYBILL_BROKERS")}
	}
	opts := []kgo.Opt{kgo.SeedBrokers(k.brokers...), kgo.ClientID("waybill"), kgo.MaxDecompressBatchBytes(events.MaxDecompressed)}
	if k.tls || k.ca != "" || k.cert != "" || k.key != "" {
		config, err := k.tlsConfig()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	if k.mechanism.value == "" {
		if k.user != "" || k.password != "" {
			return nil, usageError{errors.New("a SASL user or password is set but no mechanism: set --sasl-mechanism too")}
		}
		return opts, nil
	}
	if k.user == "" || k.password == "" {
		return nil, usageError{fmt.Errorf("--sasl-mechanism %s needs --sasl-user and --sasl-password (or WAYBILL_SASL_PASSWORD)", k.mechanism.value)}
	}
	return append(opts, kgo.SASL(k.sasl())), nil
}

func (k *kafkaFlags) sasl() sasl.Mechanism {
	secret := scram.Auth{User: k.user, Pass: k.password}
	switch k.mechanism.value {
	case "scram-sha-256":
		return secret.AsSha256Mechanism()
	case "scram-sha-512":
		return secret.AsSha512Mechanism()
	}
	return plain.Auth{User: k.user, Pass: k.password}.AsMechanism()
}

func (k *kafkaFlags) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if k.ca != "" {
		var err error
		if config.RootCAs, err = authorities("--tls-ca", k.ca); err != nil {
			return nil, err
		}
	}
	if k.cert != "" || k.key != "" {
		if k.cert == "" || k.key == "" {
			return nil, usageError{errors.New("--tls-cert and --tls-key go together")}
		}
		pair, err := tls.LoadX509KeyPair(k.cert, k.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// connect returns the topics of the namespace, and a client once a broker has
// answered it. The caller closes it.
func (k *kafkaFlags) connect(ctx context.Context) (topics events.Topics, _ *kgo.Client, err error) {
	if topics, err = events.NewTopics(k.namespace); err != nil {
		return topics, nil, usageError{err}
	}
	opts, err := k.options()
	if err != nil {
		return topics, nil, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return topics, nil, usageError{fmt.Errorf("connect to Kafka: %w", err)}
	}
	ask, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := client.Ping(ask); err != nil {
		client.Close()
		return topics, nil, fmt.Errorf("no Kafka broker answers at %s; is --brokers right? %w", strings.Join(k.brokers, ","), err)
	}
	return topics, client, nil
}
