package httpagent

import "github.com/waybill-dev/waybill/yamlfile"

// Error is one problem in a file.
type Error = yamlfile.Error

// Errors is what is wrong with a file, in the order of the file. It is never
// empty where [Read] returns it.
type Errors = yamlfile.Errors //nolint:errname // it is a list of them

func quote(text string) string { return yamlfile.Quote(text) }

func shorten(text string, most int) string { return yamlfile.Clip(text, most) }
