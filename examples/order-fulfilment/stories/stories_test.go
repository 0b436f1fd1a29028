package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			var told bytes.Buffer
			err := s.run(t.Context(), &place{stderr: &told}, &told)
			t.Logf("\n%s", &told)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-h"}, 0, "usage: stories"},
		{[]string{"nosuch"}, 2, `there is no story "nosuch"; the stories are all, happy,`},
		{[]string{"-nosuch"}, 2, "flag provided but not defined"},
		{[]string{"-brokers", "127.0.0.1:9092"}, 2, "give both"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var said bytes.Buffer
			if code := run(t.Context(), test.args, &said, &said); code != test.code || !strings.Contains(said.String(), test.says) {
				t.Errorf("exit code %d, want %d; it said:\n%s", code, test.code, &said)
			}
		})
	}
}

// On a Waybill that others use too, the stories keep to names of their own.
func TestGuestsHaveNamesOfTheirOwn(t *testing.T) {
	s := &stage{guest: "stories-"}
	for _, file := range []string{string(fulfilment.Workflow), string(fulfilment.ShippingConfig), read(t, "workflows/quick-fulfilment.yaml")} {
		own := s.own(file)
		for line := range strings.SplitSeq(own, "\n") {
			for _, key := range []string{"workflow: ", "agent: "} {
				if _, name, ok := strings.Cut(line, key); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(name, "stories-") {
					t.Errorf("%q has a name of others", line)
				}
			}
		}
		if strings.ReplaceAll(own, "stories-", "") != file {
			t.Errorf("more than names changed:\n%s", own)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestAStoryThatDoesNotEndAsItMustFails(t *testing.T) {
	var out, said bytes.Buffer
	code := run(t.Context(), []string{"-brokers", "127.0.0.1:1", "-server", "http://127.0.0.1:1", "happy"}, &out, &said)
	if code != 1 || !strings.Contains(said.String(), "happy did not end as it must: no Waybill answers") {
		t.Errorf("exit code %d; it said:\n%s", code, &said)
	}
}
