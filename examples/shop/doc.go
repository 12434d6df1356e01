// Package shop is a small web shop that charges cards through the outbox: an example
// of an application, and the load of the demo.
//
// An order and the intent to charge for it are one transaction (see [Place]). If it
// commits, the card is charged once; if it does not, nothing happens. The receipt and
// the shipment are not in this code at all: they follow a successful charge as the
// catalog says (see [Catalog]).
//
//	POST /orders ──► Place ──► outbox.intents + shop.orders, one COMMIT
//	                                 │ the worker
//	                                 ▼
//	                            charge_card ──► send_receipt
//	                                       └──► create_shipment   (unless all is digital)
//
// The shop owns the schema shop. It has no state in memory and needs no right but
// those of outbox_app and on its own tables, so any number of instances may run, and a
// crash at any moment leaves whole orders only. A customer who did not get an answer
// posts the same order again and gets the first result.
//
// Of this module it imports package outbox and nothing else, like any application.
package shop
