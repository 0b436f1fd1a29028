package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybill-dev/waybill/internal/identity"
)

// staff are those who may something. Sam sells loans, and is a clerk, too.
var staff = []struct {
	name  string
	roles []string
}{
	{"sam", []string{"submitter", "payload-reader", "approver/clerk"}},
	{"ana", []string{"approver/clerk"}},
	{"bob", []string{"approver/finance"}},
	{"eve", []string{"approver/board"}},
	{"kim", []string{"operator", "payload-reader"}},
}

// Of the directory of the example's data.
const (
	accessFile    = "access.yaml"
	namespaceFile = "namespace-keys.yaml"
)

// people makes a key for each of the staff, NAME.key, the access file that knows them, and the
// keys of the namespace, unless they are there. It says what Waybill is told of them.
func people(dir string) (args []string, err error) {
	args = []string{"--access", filepath.Join(dir, accessFile), "--namespace-keys", filepath.Join(dir, namespaceFile)}
	// The access file comes last: where it is, all is.
	if _, err := os.Stat(filepath.Join(dir, accessFile)); !errors.Is(err, fs.ErrNotExist) {
		return args, err
	}
	return args, makePeople(dir)
}

func makePeople(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	write := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	var access strings.Builder
	access.WriteString("keys:\n")
	for _, p := range staff {
		key, hash, err := identity.NewKey(p.name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&access, "  - {id: %s, hash: %q, roles: [%s]}\n", p.name, hash, strings.Join(p.roles, ", "))
		if err := write(p.name+".key", key+"\n"); err != nil {
			return err
		}
	}
	own, err := identity.NewNamespaceKey("loan")
	if err != nil {
		return err
	}
	return errors.Join(write(namespaceFile, "keys:\n"+own), write(accessFile, access.String()))
}
