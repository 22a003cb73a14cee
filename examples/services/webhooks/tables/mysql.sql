CREATE TABLE webhooks (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    url VARCHAR(2000) NOT NULL,
    payload TEXT NOT NULL
);

-- What the endpoints have answered. Without a key on the webhook: that would hide a second answer.
CREATE TABLE answers (
    webhook_id BIGINT NOT NULL,
    try_number INTEGER NOT NULL,
    status INTEGER NOT NULL,
    took_ms INTEGER NOT NULL,
    answered_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    FOREIGN KEY (webhook_id) REFERENCES webhooks (id)
);
