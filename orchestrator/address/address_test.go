package address

import (
	"strings"
	"testing"
)

// Each address, and who takes it: what is told of it where it is refused.
func TestAddresses(t *testing.T) {
	const (
		form, scheme, host, name, port = "cannot be read", "does not begin with http", "no host", "no name and no IP", "from 1 to 65535"
		blank, user, query, fragment   = "a blank", "a user", "a query", "a #"
		end, escaped, long             = "a / at its end", "has to be escaped", "longer than 255"
	)
	for text, want := range map[string]struct {
		plain, most, advertised string // by Parse without any parts, with all, and by Advertised
	}{
		"http://waybill-1:8080":                      {},
		"https://waybill.example":                    {},
		"https://waybill.example/tools/waybill":      {},
		"http://way_bill:1":                          {},
		"http://waybill:65535":                       {},
		"http://10.0.0.7:8080":                       {},
		"http://[fd00::7]:8080":                      {},
		"http://[fd00::7]":                           {},
		"http://waybill.":                            {},
		"https://Waybill.EXAMPLE:443":                {},
		"HTTP://waybill-1":                           {"", "", escaped},
		"http://waybill-1/":                          {"", "", end},
		"http://waybill-1/a/":                        {"", "", end},
		"http://waybill-1/%2e%2e":                    {"", "", escaped},
		"http://waybill-1/%20":                       {"", "", escaped},
		"http://waybill-1/>":                         {"", "", escaped},
		"http://waybill-1/'":                         {"", "", escaped},
		"http://wäybill":                             {"", "", escaped},
		"http://[fe80::1%25eth0]:80":                 {"", "", escaped},
		"http://" + strings.Repeat("w", longest):     {"", "", long},
		"http://user:hush@waybill-1":                 {user, "", user},
		"http://hush@waybill-1":                      {user, "", user},
		"http://@waybill-1":                          {user, "", user},
		"http://waybill-1/?a=hush":                   {query, "", query},
		"http://waybill-1?":                          {query, "", query},
		"http://waybill-1#hush":                      {fragment, fragment, fragment},
		"http://waybill-1#":                          {fragment, fragment, fragment},
		"":                                           {scheme, scheme, scheme},
		"hush:8080":                                  {scheme, scheme, scheme},
		"//waybill-1:8080":                           {scheme, scheme, scheme},
		"/orders":                                    {scheme, scheme, scheme},
		"ftp://waybill-1":                            {scheme, scheme, scheme},
		"javascript:alert(1)":                        {scheme, scheme, scheme},
		"javascript://x/%0aalert(1)":                 {scheme, scheme, scheme},
		"file:///etc/passwd":                         {scheme, scheme, scheme},
		"http://":                                    {host, host, host},
		"http://:8080":                               {host, host, host},
		"https:waybill.example":                      {host, host, host},
		"https:///waybill.example":                   {host, host, host},
		"http://..":                                  {name, name, name},
		"http://waybill..":                           {name, name, name},
		"http://.waybill":                            {name, name, name},
		"http://way<hush>bill":                       {name, name, name},
		"http://way,bill":                            {name, name, name},
		`http://waybill-1\@hush`:                     {form, form, form},
		"http://waybill-1:":                          {port, port, port},
		"http://waybill-1:0":                         {port, port, port},
		"http://waybill-1:00":                        {port, port, port},
		"http://waybill-1:65536":                     {port, port, port},
		"http://waybill-1:70000":                     {port, port, port},
		"http://waybill-1:99999999999999999999":      {port, port, port},
		"http://waybill-1:hush":                      {form, form, form},
		"http://waybill-1:-1":                        {form, form, form},
		"http://fd00::7:8080":                        {form, form, form},
		"http://fd00::7":                             {form, form, form},
		"http://[waybill-1]:8080":                    {form, form, form},
		"http://[10.0.0.7]:8080":                     {form, form, form},
		"http://[fd00::7":                            {form, form, form},
		"http://[fd00::7]8080":                       {form, form, form},
		"http://w%41ybill":                           {form, form, form},
		"http://waybill-1/%zz":                       {form, form, form},
		"http://waybill-1/a b":                       {blank, blank, blank},
		" http://waybill-1":                          {blank, blank, blank},
		"http://waybill-1 ":                          {blank, blank, blank},
		"http://way bill":                            {blank, blank, blank},
		"http://waybill-1\r\nX: y":                   {blank, blank, blank},
		"http://waybill-1/\x7f":                      {blank, blank, blank},
		"http://waybill-1/?a=b c":                    {blank, blank, blank},
		"http://us er:hush@waybill-1":                {blank, blank, blank},
		"http://user:hush@waybill-1/?a=b#c":          {user, fragment, user},
		"https://user:hush@[fd00::7]:0/?a=b#c":       {port, port, port},
		"https://user:hush@:443":                     {host, host, host},
		"https://user:hush@waybill.example:443/a?b=": {user, "", user},
	} {
		_, plain := Parse(text, 0)
		_, most := Parse(text, User|Query)
		_, advertised := Advertised(text)
		for by, of := range map[string]struct {
			err  error
			want string
		}{"alone": {plain, want.plain}, "with all parts": {most, want.most}, "advertised": {advertised, want.advertised}} {
			switch {
			case of.want == "" && of.err != nil, of.want != "" && (of.err == nil || !strings.Contains(of.err.Error(), of.want)):
				t.Errorf("%q %s: %v, and not %q", text, by, of.err, of.want)
			case of.err != nil && strings.Contains(of.err.Error(), "hush"):
				t.Errorf("%q is repeated: %v", text, of.err)
			}
		}
	}
	for _, c := range []struct {
		may     Parts
		refused string
	}{{User, "http://waybill-1?a"}, {Query, "http://me@waybill-1"}} {
		if _, err := Parse(c.refused, c.may); err == nil {
			t.Errorf("%q passes", c.refused)
		}
	}
}

func TestSameAddress(t *testing.T) {
	lines := [][]string{ // those of a line are one, and no two of two lines
		{"http://wb", "http://wb:80", "http://WB:80", "HTTP://wb", "http://wb/", "http://wb:80/", "http://wb:080", "http://wb.", "http://wb.:80//"},
		{"https://wb", "https://wb:443", "https://Wb/"},
		{"http://wb:443", "http://wb:443/"},
		{"https://wb:80"},
		{"http://wb:8080", "http://wB:8080/"},
		{"http://wb/a", "http://wb:80/a/", "http://WB/a"},
		{"http://wb/A"},
		{"http://wb/a%2fb"},
		{"http://wb/a/b"},
		{"http://wb?a"},
		{"http://[fd00::7]", "http://[FD00:0::7]:80/", "http://[fd00:0:0:0:0:0:0:7]"},
		{"http://10.0.0.7", "http://10.0.0.7:80"},
		{"http://me@wb"},
		{"http://"},
		{"wb"},
		{""},
	}
	for n, all := range lines {
		for _, a := range all {
			for m, others := range lines {
				for _, b := range others {
					if Same(a, b) != (n == m) {
						t.Errorf("%q and %q are one: %t", a, b, n != m)
					}
				}
			}
		}
	}
}
