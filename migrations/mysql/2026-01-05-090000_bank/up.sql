-- IF NOT EXISTS, because every CREATE TABLE commits by itself here: a migration that was cut short starts again with some
-- of its tables made.
CREATE TABLE IF NOT EXISTS companies (
    id BIGINT PRIMARY KEY,
    balance_cents BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS payments (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    company_id BIGINT NOT NULL,
    amount_cents BIGINT NOT NULL,
    FOREIGN KEY (company_id) REFERENCES companies (id)
);

-- Without a unique key on the payment, which would hide a double booking.
CREATE TABLE IF NOT EXISTS ledger (
    payment_id BIGINT NOT NULL,
    amount_cents BIGINT NOT NULL,
    FOREIGN KEY (payment_id) REFERENCES payments (id)
);

-- The file that was enqueued. A database takes one.
CREATE TABLE IF NOT EXISTS imports (
    id INTEGER PRIMARY KEY,
    file TEXT NOT NULL,
    payments BIGINT NOT NULL
);
