//go:build race

package integration

func init() { raced = true }
