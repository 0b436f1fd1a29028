// Package child is for tests that start processes of their own.
package child
