package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"strings"

	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
)

// serverFlags say which instance to talk to, and as whom.
type serverFlags struct {
	server, token, tokenFile string
	ca, cert, key            string
	owners                   []string
}

// addServer adds the flags that say which instance to talk to.
func addServer(flags *pflag.FlagSet) *serverFlags {
	s := &serverFlags{}
	flags.StringVar(&s.server, "server", "http://127.0.0.1:8080", "address of a running Waybill")
	flags.String("context", "", "name of the server to ask, as waybill context list has it, instead of the one in use") // see applyContext
	flags.StringVar(&s.token, "token", "", "key or token that says who asks; others on this machine may see it, so better in a file or the environment")
	flags.StringVar(&s.tokenFile, "token-file", "", "file with the key or token that says who asks")
	flags.StringVar(&s.ca, "ca", "", "PEM file with the authorities to trust with the server's certificate, instead of the system's")
	flags.StringVar(&s.cert, "cert", "", "PEM file with the certificate that says who asks")
	flags.StringVar(&s.key, "key", "", "PEM file with that certificate's key")
	flags.StringSliceVar(&s.owners, "owner-hosts", nil, "hosts, patterns such as *.waybill.svc, or networks such as 10.1.0.0/16, to which what says who asks may go, too, where the server names the instance that answers (--standby owned); without, to the server's host alone")
	return s
}

// named says whether the server is told who asks.
func (s *serverFlags) named() bool { return s.token != "" || s.tokenFile != "" || s.cert != "" }

// talk calls do with a client of the server.
func (s *serverFlags) talk(do func(*api.Client) error) error {
	token, err := s.bearer()
	if err != nil {
		return usageError{err}
	}
	trust, err := s.tlsConfig()
	if err != nil {
		return usageError{err}
	}
	for _, pattern := range s.owners {
		_, wrong := path.Match(pattern, "")
		if strings.Contains(pattern, "/") {
			_, wrong = netip.ParsePrefix(pattern)
		}
		if wrong != nil {
			return usageError{fmt.Errorf("--owner-hosts %q: use hosts, patterns of hosts such as *.waybill.svc, or networks such as 10.1.0.0/16", pattern)}
		}
	}
	if err := s.inClear(token != "", trust != nil); err != nil {
		return usageError{err}
	}
	client, err := api.NewClient(s.server, api.WithToken(token), api.WithTLS(trust), api.WithOwners(s.owners))
	if err != nil {
		return usageError{fmt.Errorf("--server: %w", err)}
	}
	defer client.Close()
	err = do(client)
	if problem, ok := errors.AsType[*api.Problem](err); ok && problem.Status == http.StatusUnauthorized {
		return fmt.Errorf("%w\nsay who asks with --token-file or WAYBILL_TOKEN, or with --cert and --key; `waybill key new` makes a key", err)
	}
	return err
}

// inClear says what is wrong with asking without TLS: certificates are of no use then, and
// whoever listens reads a token, which goes to this machine alone unless somebody wrote http.
func (s *serverFlags) inClear(token, trust bool) error {
	scheme, rest, written := strings.Cut(s.server, "://")
	host, _, _ := strings.Cut(rest, "/")
	if !written {
		scheme, host = "http", s.server
	}
	switch {
	case scheme != "http":
		return nil
	case trust:
		return errors.New("--ca, --cert and --key are of use with TLS only: write https:// before the address in --server")
	case token && !written && !local(host):
		return errors.New("the token would be sent in clear: write https:// before the address in --server, or http:// if nobody else can listen")
	}
	return nil
}

// local says whether a host, with or without a port, is this machine.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return identity.Loopback(strings.Trim(host, "[]"))
}

// bearer is the token that says who asks, "" for none.
func (s *serverFlags) bearer() (string, error) {
	token := s.token
	if s.tokenFile != "" {
		if token != "" {
			return "", errors.New("--token and --token-file both say who asks; use one of the two")
		}
		if strings.HasPrefix(s.tokenFile, "wbk_") { // which must not be printed
			return "", errors.New("--token-file has a key; it takes the name of the file that has it")
		}
		text, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", fmt.Errorf("--token-file: %s is empty", s.tokenFile)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token has a space, a line break or another character that none has") // it is not printed
	}
	return token, nil
}

// tlsConfig is nil where nothing is said of it.
func (s *serverFlags) tlsConfig() (*tls.Config, error) {
	if (s.cert == "") != (s.key == "") {
		return nil, errors.New("--cert and --key belong together; give both")
	}
	if s.ca == "" && s.cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		var err error
		if config.RootCAs, err = authorities("--ca", s.ca); err != nil {
			return nil, err
		}
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
