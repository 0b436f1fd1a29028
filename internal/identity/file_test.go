package identity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const aHash = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestAFileThatSaysAll(t *testing.T) {
	f, err := read("access.yaml", []byte(`
keys:
  - id: ci
    subject: ci@shop
    hash: `+aHash+`
    roles: [submitter, viewer]
    workflows: [order-*]
    expires: 2030-01-02
  - {id: root, hash: "`+aHash+`", roles: [admin]}
certificates:
  - {subject: "CN=ana,O=Shop", roles: [operator]}
  - {san: billing.shop.example, roles: [viewer]}
oidc:
  issuer: https://id.example
  audience: waybill
  subject: email
  roles:
    - {group: ops, roles: [operator], workflows: [order-*]}
    - {group: ops, roles: [viewer]}
    - {group: 4711, roles: [deployer]}
`))
	if err != nil {
		t.Fatal(err)
	}
	ci := f.keys["ci"]
	if ci.subject != "ci@shop" || ci.expires.Format("2006-01-02") != "2030-01-02" || !ci.grant.Covers("order-1") || ci.grant.Covers("x") || !ci.grant.Has(Submitter) || ci.grant.Has(Operator) {
		t.Errorf("the key is %+v", ci)
	}
	if root := f.keys["root"]; root.subject != "root" || !root.expires.IsZero() || !root.grant.Covers("x") {
		t.Errorf("the other key is %+v", root)
	}
	if len(f.certificates) != 2 || f.oidc == nil || len(f.oidc.groups["ops"]) != 2 || len(f.oidc.groups["4711"]) != 1 || f.oidc.subject != "email" || f.oidc.group != "groups" {
		t.Errorf("the rest is %+v %+v", f.certificates, f.oidc)
	}
}

// The example in docs/security.md is a file that is taken.
func TestTheFileInTheDocuments(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := read("security.md", []byte(strings.NewReplacer("sha256:5b1c…", aHash, "/run/secrets/oidc", secret).Replace(example)))
	if err != nil || len(f.keys) != 1 || len(f.certificates) != 2 || len(f.oidc.groups) != 2 || f.oidc.login == nil || f.oidc.login.client != "waybill-console" {
		t.Errorf("%+v, %v", f, err)
	}
}

// What is wrong is said with line and column, all of it at once, and what to do about it.
func TestFilesThatAreWrong(t *testing.T) {
	const key = "keys:\n  - id: ci\n    hash: " + aHash + "\n    roles: [viewer]\n"
	for name, c := range map[string]struct{ text, want string }{
		"nothing":             {"", `a:1:1: the file names nobody`},
		"only a comment":      {"# later\n", `a:1:1: the file names nobody`},
		"no YAML":             {"keys: [", `a:1:`},
		"not UTF-8":           {"keys: \xff", `not UTF-8`},
		"unknown member":      {key + "kees: []\n", `a:5:1: unknown field "kees"`},
		"unknown in a key":    {key + "    rolls: [viewer]\n", `a:5:5: unknown field "rolls"`},
		"a member twice":      {key + "    id: other\n", `a:5:5: `},
		"a second document":   {key + "---\n" + key, `second document`},
		"unknown role":        {strings.Replace(key, "[viewer]", "[viewer, rooot]", 1), `a:4:21: there is no role "rooot"; the roles are viewer, payload-reader, submitter, operator, approver/NAME, deployer, admin`},
		"an approver of all":  {strings.Replace(key, "viewer", "approver", 1), `a:4:13: an approver is one of a role that workflows ask, such as approver/finance; name it`},
		"an approver's name":  {strings.Replace(key, "viewer", "approver/Finance", 1), `a:4:13: the role of an approver "Finance" holds 'F'; use lower-case letters, digits and hyphens`},
		"an approver without": {strings.Replace(key, "viewer", "approver/", 1), `a:4:13: there is no role "approver/"`},
		"no roles":            {strings.Replace(key, "[viewer]", "[]", 1), `a:4:12: nothing is said here`},
		"no roles at all":     {strings.Replace(key, "    roles: [viewer]\n", "", 1), `a:2:9: the entry has no roles`},
		"no workflows":        {key + "    workflows: []\n", `a:5:16: nothing is said here`},
		"no word of them":     {key + "    workflows:\n", `a:5:16: nothing is said here`},
		"no end":              {key + "    expires:\n", `a:5:14: nothing is said here`},
		"an id twice":         {key + strings.TrimPrefix(key, "keys:\n"), `a:5:9: the id "ci" is given twice`},
		"no id":               {strings.Replace(key, "id: ci", "subject: ci", 1), `a:3:11: a key has no id; ` + "`waybill key new"},
		"a bad id":            {strings.Replace(key, "id: ci", "id: c_i", 1), `a:2:9: the id "c_i"`},
		"a list as an id":     {strings.Replace(key, "id: ci", "id: [ci]", 1), `a:2:9: a text is wanted here`},
		"a bad pattern":       {key + "    workflows: [\"order-[\"]\n", `a:5:17: "order-[" is no pattern`},
		"an empty pattern":    {key + "    workflows: [\"\"]\n", `a:5:17: "" is no pattern`},
		"a limited admin":     {strings.Replace(key, "viewer", "admin", 1) + "    workflows: [x]\n", `a:4:13: an admin is not limited`},
		"the key as its hash": {strings.Replace(key, aHash, "wbk_ci_secret", 1), `a:3:11: hash is sha256: and 64`},
		"a short hash":        {strings.Replace(key, "abcdef\n", "\n", 1), `a:3:11: hash is sha256: and 64`},
		"no hash":             {"keys:\n  - {id: ci, roles: [viewer]}\n", `a:2:10: hash is sha256: and 64`},
		"a bad time":          {key + "    expires: soon\n", `a:5:14: expires is a time such as 2030-01-02T15:04:05Z`},
		"a name with a bell":  {key + "    subject: \"a\\ab\"\n", `a:5:14: the name "a\ab"`},
		"a long name":         {key + "    subject: " + strings.Repeat("x", 257) + "\n", `at most 256 bytes`},
		"two names":           {"certificates:\n  - {subject: a, san: b, roles: [viewer]}\n", `a:2:15: a certificate is named by its subject`},
		"no name":             {key + "certificates:\n  - {roles: [viewer]}\n", `a certificate is named by its subject`},
		"no issuer":           {key + "oidc: {audience: w, roles: [{group: g, roles: [viewer]}]}\n", `issuer is the address`},
		"an issuer in clear":  {"oidc: {issuer: \"http://id.example\", audience: w, roles: [{group: g, roles: [viewer]}]}\n", `a:1:16: issuer is the address`},
		"no audience":         {"oidc: {issuer: \"https://id.example\", roles: [{group: g, roles: [viewer]}]}\n", `oidc has no audience`},
		"no groups":           {"oidc: {issuer: \"https://id.example\", audience: w}\n", `oidc has no roles`},
		"an entry for nobody": {"oidc: {issuer: \"https://id.example\", audience: w, roles: [{roles: [viewer]}]}\n", `has no group`},
		"several":             {strings.NewReplacer("viewer", "vewer", "id: ci", "id: c_i").Replace(key), "a:2:9: the id \"c_i\": use 1 to 64 of a-z A-Z 0-9 . -\na:4:13: there is no role \"vewer\""},
		"too large":           {key + "#" + strings.Repeat("x", maxFile), `at most 1048576 are allowed`},
	} {
		f, err := read("a", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n%v\nwant %s\nread as %+v", name, err, c.want, f)
		}
	}
}
