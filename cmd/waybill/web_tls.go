package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/identity"
)

// tlsFlags are the HTTP server's. Those of Kafka's clients have no http in their names.
type tlsFlags struct{ cert, key, clientCA string }

func (f *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "http-tls-cert", "", "PEM file with the HTTP server's certificate, and those that lead to its authority; it is read again when it changes")
	flags.StringVar(&f.key, "http-tls-key", "", "PEM file with that certificate's key")
	flags.StringVar(&f.clientCA, "http-tls-client-ca", "", "PEM file with the authorities of clients' certificates, which may say who asks; without another way to say it, each client must have one")
}

func (f *tlsFlags) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return errors.New("--http-tls-cert and --http-tls-key belong together; give both")
	case f.clientCA != "" && f.cert == "":
		return errors.New("--http-tls-client-ca is of use with TLS only; give --http-tls-cert and --http-tls-key, too")
	}
	return nil
}

// tlsSetup is what the files say. They are looked at every two seconds, when somebody
// connects; what became wrong changes nothing.
type tlsSetup struct {
	files  *tlsFlags
	access *identity.Access
	log    *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	stamps [3]fileStamp
	wrong  string // what is wrong with them
	looked time.Time
}

// fileStamp tells one content of a file from another.
type fileStamp struct {
	modified time.Time
	size     int64
}

func openTLS(files *tlsFlags, access *identity.Access, log *slog.Logger) (*tlsSetup, error) {
	s := &tlsSetup{files: files, access: access, log: log, stamps: files.stamps(), looked: time.Now()}
	var err error
	s.config, err = files.load()
	return s, err
}

func (f *tlsFlags) stamps() (all [3]fileStamp) {
	for n, name := range []string{f.cert, f.key, f.clientCA} {
		if info, err := os.Stat(name); err == nil {
			all[n] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return all
}

func (f *tlsFlags) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--http-tls-cert and --http-tls-key: %w", err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"http/1.1"}, // one request at a time of each connection, as without TLS
	}
	if f.clientCA != "" {
		if config.ClientCAs, err = authorities("--http-tls-client-ca", f.clientCA); err != nil {
			return nil, err
		}
		config.SessionTicketsDisabled = true // each connection shows its certificate to the authorities of now
	}
	return config, nil
}

// forClient is how a connection is made that begins now.
func (s *tlsSetup) forClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) >= 2*time.Second {
		s.looked = time.Now()
		if now := s.files.stamps(); now != s.stamps {
			s.stamps = now // of before they are read: what is written meanwhile has others
			if config, err := s.files.load(); err != nil {
				s.stamps = [3]fileStamp{} // they are tried again: what they may be read by changes no stamp
				if s.wrong != err.Error() {
					s.log.Error("the files of TLS are wrong; what they said before counts on", "error", err)
				}
				s.wrong = err.Error()
			} else {
				s.wrong = ""
				s.config = config
				s.log.Info("the files of TLS were read again")
			}
		}
	}
	config := s.config.Clone()
	switch {
	case config.ClientCAs == nil:
	case s.access == nil || s.access.OnlyCertificates():
		config.ClientAuth = tls.RequireAndVerifyClientCert
	default:
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil
}

// authorities are those in the PEM file that a flag names.
func authorities(flag, file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %s has no certificate in PEM", flag, file)
	}
	return pool, nil
}
