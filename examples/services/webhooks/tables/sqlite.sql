CREATE TABLE webhooks (
    id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    url TEXT NOT NULL,
    payload TEXT NOT NULL
);

-- What the endpoints have answered. Without a key on the webhook: that would hide a second answer.
CREATE TABLE answers (
    webhook_id BIGINT NOT NULL REFERENCES webhooks (id),
    try_number INTEGER NOT NULL,
    status INTEGER NOT NULL,
    took_ms INTEGER NOT NULL,
    answered_at TIMESTAMP NOT NULL
);
