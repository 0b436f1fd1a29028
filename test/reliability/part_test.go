package reliability

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What is written is read again, in its order.
func TestFiguresKeepTheirOrder(t *testing.T) {
	const text = `{"z":1,"a":"two","group":{"y":true,"b":{"p50":"3ms","n":1.5}},"none":{}}`
	var f Figures
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(f)
	if err != nil || string(again) != text {
		t.Errorf("%s, %v instead of %s", again, err, text)
	}
	if n := f.Get("group").(Figures).Get("b").(Figures).Get("n"); n != json.Number("1.5") || f.Get("nothing") != nil {
		t.Errorf("n is %v, nothing is %v", n, f.Get("nothing"))
	}
	for _, bad := range []string{`[]`, `{"a":[1]}`, `{"a":{"b":[1]}}`, `1`} {
		if err := json.Unmarshal([]byte(bad), new(Figures)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestWriteSaysWhatIsNotWrong(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(Directory, dir)
	Write(t, "some", "make some", Figures{{"lost", 3}})
	text, err := os.ReadFile(filepath.Join(dir, "some.json"))
	var f Figures
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || f.Get("command") != "make some" || f.Get("lost") != json.Number("3") || f.Get("stuck") != json.Number("0") {
		t.Errorf("%v, %s", err, text)
	}
}

func TestTimes(t *testing.T) {
	var all []time.Duration
	for n := range 200 {
		all = append(all, time.Duration(200-n)*10*time.Millisecond)
	}
	text, err := json.Marshal(Times(all))
	if want := `{"times":200,"p50":"1s","p90":"1.8s","p99":"2s","most":"2s"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v instead of %s", text, err, want)
	}
	if got := Times(nil).Get("p50"); got != "" {
		t.Errorf("of nothing: %v", got)
	}
}
