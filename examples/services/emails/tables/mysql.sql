-- The article's table.
CREATE TABLE unsent_emails (
    id INT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    status ENUM('unsent', 'claimed', 'sent'),
    owner INT UNSIGNED NOT NULL DEFAULT 0,
    ts TIMESTAMP,
    KEY (owner, status, ts)
);

-- What the mails say, of which the article does not speak.
CREATE TABLE email_texts (
    email_id INT NOT NULL PRIMARY KEY,
    recipient VARCHAR(255) NOT NULL,
    subject VARCHAR(255) NOT NULL,
    body TEXT NOT NULL,
    FOREIGN KEY (email_id) REFERENCES unsent_emails (id)
);
