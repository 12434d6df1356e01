// Package catalog holds the rules of every operation: what it is called and takes, how
// its key is decided, which lane it uses, how long things may last, what follows its
// success. A team writes them in one file; [Parse] checks it and [Apply] puts it into
// the database, where enqueue and the workers read it.
//
// The database is authoritative. A revision is immutable and the highest of an
// operation is in force for what is enqueued next; an intent keeps the revision it was
// recorded under, so workers [Load] old ones as well. Apply is one transaction: a crash
// leaves the whole catalog as it was, and applying a file twice changes nothing,
// because a revision is recognised by the digest of its normalised form.
//
// Everything that can be known beforehand is refused by Parse, with file, line and a
// hint, because the alternative is a payment that waits for review at night. What needs
// the payload is left to [Revision.CheckInput] and [Revision.FollowOns], which the
// worker calls. What needs the provider (key memory, lookup) is left to the worker.
//
// The package imports outbox/canonical of this module and nothing else. It knows
// neither River nor any provider, and reads neither network, environment nor clock.
package catalog
