package kafka

import (
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// Alive says whether a container is there, running or not.
func Alive(t testing.TB, id string) bool {
	t.Helper()
	docker, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close()
	_, err = docker.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	return err == nil
}
