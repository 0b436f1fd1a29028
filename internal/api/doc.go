// Package api is Waybill's HTTP interface and the client of it that the
// command line uses.
//
// A [Server] answers for one orchestrator instance at a time. It serves before
// there is one, so that whoever watches the process can see what it waits for,
// and it stays when the instance is replaced.
//
// Every error is an RFC 9457 problem document. /openapi.json describes it all.
package api
