// Package identity says who calls, and what it may.
//
// An [Access] is the file that names callers, read again when it changes. It
// knows three ways to be named: a key of Waybill's own, a token of an OpenID
// Connect issuer, and a client's certificate. What a [Caller] may is a list of
// grants: a role, for all workflows or for those of some names.
package identity
