-- Logins with the least they need. Run as a superuser (or the owner of the roles) after
-- outbox-worker migrate, and give each a password of its own: \password shop
--
-- outbox-worker doctor, started as each of them, says what it may do. To judge the rest it
-- has to read the ledger and to see what other sessions do, hence pg_read_all_stats.

-- The application: its own tables, and the functions enqueue, enqueue_many and status.
CREATE ROLE shop LOGIN;
GRANT outbox_app TO shop;

-- The workers. With outbox_retention they also forget what is past its retention; leave it
-- out, and have somebody else do so: outbox-worker retention run.
CREATE ROLE outbox_dispatch LOGIN;
GRANT outbox_worker, outbox_retention, pg_read_all_stats TO outbox_dispatch;

-- A person on call. One login per person: the history records who acted.
CREATE ROLE alice LOGIN;
GRANT outbox_operator, pg_read_all_stats TO alice;
