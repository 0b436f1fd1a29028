package workflow

import (
	"errors"
	"fmt"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Raise ends the order as the failure that it names: nothing starts any more.
type Raise struct {
	Code       string      // 1 to 256 bytes
	Message    *Expression // a text; nil where there is none
	Compensate bool        // what was done is undone first
}

// Says is the text of the message, "" if there is none.
//
// The error says why the expression failed, in at most 1 KiB.
func (r *Raise) Says(s Scope) (text string, err error) {
	if r.Message == nil {
		return "", nil
	}
	err = r.Message.evaluate(s, func(v ref.Val) error {
		message, ok := v.(types.String)
		if text = string(message); !ok {
			return fmt.Errorf("it is a text, this is %s", describe(v))
		}
		return nil
	})
	return text, err
}

func checkRaised(code string) error {
	if code == "" {
		return errors.New("is empty; write the code of the failure")
	}
	return checkCode(code)
}

func (r *reader) raise(n ast.Node, d *draft) {
	d.Raise = new(Raise)
	given := r.mapping(n, "raise", []field{
		{"code", func(n ast.Node) { d.Raise.Code, _ = r.checked(n, "code", checkRaised) }},
		{"message", func(n ast.Node) {
			d.message = r.scalar(n, "message", "message: '\"no stock of \" + input.item'")
		}},
		{"compensate", func(n ast.Node) { r.truth(n, "compensate", &d.Raise.Compensate) }},
	})
	r.require(n, given, "raise", "code")
}

// raises is a step that raises: what is said of an operation, or of a sleep, has no effect there.
func (r *reader) raises(given map[string]*token.Token, d draft) draft {
	r.only(given, "raise", "a step that raises ends the order")
	d.Step = Step{Name: d.Name, Raise: d.Raise}
	d.with, d.undoWith, d.enough, d.lasts, d.until = nil, nil, nil, nil, nil
	return d
}
