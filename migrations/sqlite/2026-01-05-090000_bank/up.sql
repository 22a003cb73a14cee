CREATE TABLE companies (
    id INTEGER PRIMARY KEY NOT NULL,
    balance_cents BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE payments (
    id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    company_id BIGINT NOT NULL REFERENCES companies (id),
    amount_cents BIGINT NOT NULL
);

-- Without a key on the payment, which would hide a double booking.
CREATE TABLE ledger (
    payment_id BIGINT NOT NULL REFERENCES payments (id),
    amount_cents BIGINT NOT NULL
);

-- The file that was enqueued. A database takes one.
CREATE TABLE imports (
    id INTEGER PRIMARY KEY NOT NULL,
    file TEXT NOT NULL,
    payments BIGINT NOT NULL
);
