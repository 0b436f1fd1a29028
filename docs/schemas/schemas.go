// Package schemas has those of the published JSON Schemas that the program prints.
package schemas

import _ "embed"

// Workflow is the schema of workflow files.
//
//go:embed workflow.json
var Workflow []byte
