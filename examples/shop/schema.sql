-- The shop's own tables. Each statement may be run again: Setup does at every start.
CREATE SCHEMA IF NOT EXISTS shop;

CREATE TABLE IF NOT EXISTS shop.orders (
    placed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    amount      bigint      NOT NULL,
    shipping    bigint      NOT NULL,
    storefront  text        NOT NULL,
    order_id    text        NOT NULL,
    customer    text        NOT NULL,
    name        text        NOT NULL,
    email       text        NOT NULL,
    currency    text        NOT NULL,
    description text        NOT NULL,
    gift_note   text        NOT NULL,
    charge      text        NOT NULL,
    address     jsonb,
    CONSTRAINT orders_pkey PRIMARY KEY (storefront, order_id),
    CONSTRAINT orders_amount_positive CHECK (amount > 0)
);
COMMENT ON TABLE shop.orders IS 'Orders as they were placed; each storefront counts its own. charge is the reference of the intent that was committed with the order.';

CREATE TABLE IF NOT EXISTS shop.order_lines (
    quantity   bigint  NOT NULL,
    unit_price bigint  NOT NULL,
    position   int     NOT NULL,
    digital    boolean NOT NULL,
    storefront text    NOT NULL,
    order_id   text    NOT NULL,
    sku        text    NOT NULL,
    title      text    NOT NULL,
    CONSTRAINT order_lines_pkey PRIMARY KEY (storefront, order_id, position),
    CONSTRAINT order_lines_order_fkey FOREIGN KEY (storefront, order_id) REFERENCES shop.orders (storefront, order_id)
);
COMMENT ON TABLE shop.order_lines IS 'What was ordered, in the order''s own order. Prices are in minor units of the order''s currency.';
