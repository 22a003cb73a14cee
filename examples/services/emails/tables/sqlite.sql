-- The article's table, in SQLite's words.
CREATE TABLE unsent_emails (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    status TEXT CHECK (status IN ('unsent', 'claimed', 'sent')),
    owner INTEGER NOT NULL DEFAULT 0,
    ts TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX unsent_emails_owner ON unsent_emails (owner, status, ts);

-- What the mails say, of which the article does not speak.
CREATE TABLE email_texts (
    email_id INTEGER NOT NULL PRIMARY KEY REFERENCES unsent_emails (id),
    recipient TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL
);
