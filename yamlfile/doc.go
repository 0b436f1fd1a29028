// Package yamlfile reads files that people write in YAML: what is wrong is said all at once, by line
// and column, with what to do about it, and a value that is wrong does not keep the rest from being
// checked.
//
// It is for the other packages of this module, and may change with each release.
package yamlfile
