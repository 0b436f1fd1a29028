package kafka

import (
	"net"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// There says whether the container of a broker is there, running or not.
func There(t testing.TB, address string) bool {
	t.Helper()
	docker, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	found, err := docker.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", portLabel+"="+port)})
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Items) > 0
}
