package shop

import _ "embed"

// Catalog is the shop's catalog file: its operations, their rules and what follows
// them. Put it into the database with outbox-worker catalog apply.
//
//go:embed catalog.yaml
var Catalog []byte

// Orders are about 300 orders, one JSON object a line, as customers post them: several
// storefronts, many currencies and scripts, customers who click twice and some who come
// back with another amount under the same number. cmd/makeorders wrote them.
//
//go:embed orders.ndjson
var Orders []byte

// schema holds the shop's own tables; see Setup.
//
//go:embed schema.sql
var schema string
