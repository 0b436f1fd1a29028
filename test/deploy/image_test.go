package deploy

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/waybill-dev/waybill/test/kafka"
)

// root is the repository's.
const root = "../.."

// largest is what Waybill's image may have, in bytes. It had 36 MB when this was
// written; something is wrong when it has twice as many.
const largest = 72 << 20

// engine returns a client of the Docker engine, closed when t ends. Without an
// engine, or without Kafka's image, it skips.
func engine(t *testing.T) *testcontainers.DockerClient {
	t.Helper()
	docker, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err == nil {
		t.Cleanup(func() { docker.Close() })
		_, err = docker.Ping(t.Context(), client.PingOptions{})
	}
	if err == nil {
		err = haveKafka(t.Context(), docker)
	}
	if err != nil {
		kafka.LeaveOut(t, "the images and deploy/compose.yaml, because Docker or %s cannot be had on this machine: %v", kafka.Image, err)
	}
	return docker
}

func haveKafka(ctx context.Context, docker *testcontainers.DockerClient) error {
	if _, err := docker.ImageInspect(ctx, kafka.Image); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	pull, err := docker.ImagePull(ctx, kafka.Image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	return pull.Wait(ctx)
}

// Names of this run's images, which cannot be taken for anybody's own.
var (
	waybillImage = "waybill-test:" + run
	exampleImage = "waybill-test-example:" + run
)

// build is done once for all tests.
var build struct {
	once sync.Once
	err  error
}

// images builds both images, of what `make context` gathers.
func images(t *testing.T, docker *testcontainers.DockerClient) {
	t.Helper()
	build.once.Do(func() {
		dir := t.TempDir()
		gather := exec.CommandContext(t.Context(), "make", "-C", root, "context", "CONTEXT="+dir)
		began := time.Now()
		if said, err := gather.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("make context: %w\n%s", err, said)
			return
		}
		t.Logf("make context took %s", time.Since(began).Round(time.Second))
		for target, tag := range map[string]string{"waybill": waybillImage, "example": exampleImage} {
			build.err = errors.Join(build.err, buildImage(t.Context(), docker, dir, target, tag))
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
}

func buildImage(ctx context.Context, docker *testcontainers.DockerClient, dir, target, tag string) error {
	content, writer := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		archive := tar.NewWriter(writer)
		err := errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close())
		writer.CloseWithError(err)
		packed <- err
	}()
	version := "test"
	result, err := docker.ImageBuild(ctx, content, client.ImageBuildOptions{
		Target: target, Tags: []string{tag}, Labels: map[string]string{label: run},
		BuildArgs: map[string]*string{"VERSION": &version, "REVISION": &version},
		Remove:    true, ForceRemove: true,
	})
	content.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // the whole context was read, or nobody will
	if packing := <-packed; err != nil {
		return errors.Join(fmt.Errorf("build %s: %w", tag, err), packing)
	}
	defer result.Body.Close()
	for messages := json.NewDecoder(result.Body); ; {
		var m struct {
			Error string `json:"error"`
		}
		switch err := messages.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("build %s: %w", tag, err)
		case m.Error != "":
			return fmt.Errorf("build %s: %s", tag, m.Error)
		}
	}
}

func TestImage(t *testing.T) {
	docker := engine(t)
	images(t, docker)
	for _, name := range []string{waybillImage, exampleImage} {
		image, err := docker.ImageInspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s has %.1f MB", name, float64(image.Size)/1e6)
		if image.Size > largest {
			t.Errorf("%s has %d bytes, more than %d", name, image.Size, largest)
		}
		if user := image.Config.User; user != "65532:65532" {
			t.Errorf("%s runs as %q", name, user)
		}
		if image.Config.Labels["org.opencontainers.image.title"] == "" {
			t.Errorf("%s has no title", name)
		}
	}

	image, err := docker.ImageInspect(t.Context(), waybillImage)
	if err != nil {
		t.Fatal(err)
	}
	if got := image.Config.Labels["org.opencontainers.image.version"]; got != "test" {
		t.Errorf("the image's version is %q", got)
	}
	if _, ok := image.Config.ExposedPorts["8080/tcp"]; !ok {
		t.Error("the image exposes no port 8080")
	}
	container, err := docker.ContainerCreate(t.Context(), client.ContainerCreateOptions{Image: waybillImage})
	if err != nil {
		t.Fatal(err) // the reaper removes it: it has the image's label
	}
	// Who runs the image writes its data, and nothing else.
	for _, dir := range []struct {
		name string
		uid  int
	}{{"/var/lib/waybill", 65532}, {"/tmp", 65532}, {"/waybill", 0}, {"/etc/ssl/certs", 0}} {
		if header, _ := file(t, docker, container.ID, dir.name); header.Uid != dir.uid {
			t.Errorf("%s belongs to %d, want %d", dir.name, header.Uid, dir.uid)
		}
	}
	_, certificates := file(t, docker, container.ID, "/etc/ssl/certs/ca-certificates.crt")
	if !x509.NewCertPool().AppendCertsFromPEM(certificates) {
		t.Error("the image trusts no certificate authority")
	}
}

// file reads a file, or the entry of a directory, from a container.
func file(t *testing.T, docker *testcontainers.DockerClient, container, name string) (*tar.Header, []byte) {
	t.Helper()
	copied, err := docker.CopyFromContainer(t.Context(), container, client.CopyFromContainerOptions{SourcePath: name})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Content.Close()
	archive := tar.NewReader(copied.Content)
	header, err := archive.Next()
	if err != nil || strings.Trim(header.Name, "/") != path.Base(name) {
		t.Fatalf("%s: found %+v, %v", name, header, err)
	}
	var content bytes.Buffer
	if _, err := io.Copy(&content, archive); err != nil {
		t.Fatal(err)
	}
	return header, content.Bytes()
}
