CREATE SCHEMA IF NOT EXISTS rooms;

-- What guests asked for. The operation id is decided here, once, before the first attempt:
-- whoever tries again, this process or the next one, reads it from here.
CREATE TABLE IF NOT EXISTS rooms.requests (
    operation_id uuid PRIMARY KEY,
    room         text NOT NULL,
    night        date NOT NULL,
    guest        text NOT NULL
);

-- A room has one guest a night: this key says so, whatever anybody does.
CREATE TABLE IF NOT EXISTS rooms.bookings (
    room      text NOT NULL,
    night     date NOT NULL,
    guest     text NOT NULL,
    reference text NOT NULL UNIQUE,
    PRIMARY KEY (room, night)
);
