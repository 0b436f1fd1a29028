// Package deploy tries what is deployed: it builds the images as `make image`
// does, starts the services of deploy/compose.yaml from them under
// testcontainers, in the order and under the conditions that the file says, and
// runs orders through it.
//
// Of the profile with Prometheus and Grafana it reads what is mounted, and starts
// nothing. And it says whether the patch that docs keep for kfake is one for the
// kfake that is used.
//
// It has no code but tests. Where no Docker engine answers, or Kafka's image
// cannot be had, they are skipped; with WAYBILL_REQUIRE_DOCKER=1 they fail
// instead.
package deploy
