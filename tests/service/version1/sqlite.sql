CREATE TABLE arrivals (
    campaign TEXT NOT NULL, 
    hour BIGINT NOT NULL, 
    messages BIGINT NOT NULL, 
    PRIMARY KEY (campaign, hour)
)
 WITHOUT ROWID;
CREATE TABLE batches (
    campaign TEXT NOT NULL, 
    batch BLOB NOT NULL, 
    slot INTEGER NOT NULL, 
    sealing_key TEXT NOT NULL, 
    size BIGINT NOT NULL, 
    parts INTEGER NOT NULL, 
    opened BOOLEAN NOT NULL, 
    accepted BIGINT NOT NULL, 
    "foreign" BIGINT NOT NULL, 
    malformed BIGINT NOT NULL, 
    repeated BIGINT NOT NULL, 
    PRIMARY KEY (campaign, batch)
)
 WITHOUT ROWID;
CREATE TABLE campaigns (
    name TEXT NOT NULL, 
    mechanism TEXT NOT NULL, 
    terms TEXT NOT NULL, 
    closed BOOLEAN NOT NULL, 
    last_hour BIGINT, 
    issued BIGINT NOT NULL, 
    PRIMARY KEY (name)
)
 WITHOUT ROWID;
CREATE TABLE envelopes (
    campaign TEXT NOT NULL, 
    batch BLOB NOT NULL, 
    part INTEGER NOT NULL, 
    count BIGINT NOT NULL, 
    body BLOB NOT NULL, 
    PRIMARY KEY (campaign, batch, part)
)
 WITHOUT ROWID;
CREATE TABLE estimates (
    campaign TEXT NOT NULL, 
    messages BIGINT NOT NULL, 
    result BLOB NOT NULL, 
    PRIMARY KEY (campaign)
)
 WITHOUT ROWID;
CREATE TABLE history (
    campaign TEXT NOT NULL, 
    messages BIGINT NOT NULL, 
    error DOUBLE NOT NULL, 
    PRIMARY KEY (campaign, messages)
)
 WITHOUT ROWID;
CREATE TABLE outgoing (
    campaign TEXT NOT NULL, 
    batch BLOB NOT NULL, 
    part INTEGER NOT NULL, 
    slot INTEGER NOT NULL, 
    sealing_key TEXT NOT NULL, 
    size BIGINT NOT NULL, 
    parts INTEGER NOT NULL, 
    count BIGINT NOT NULL, 
    body BLOB NOT NULL, 
    PRIMARY KEY (campaign, batch, part)
)
 WITHOUT ROWID;
CREATE TABLE pieces (
    campaign TEXT NOT NULL, 
    first BIGINT NOT NULL, 
    width BIGINT NOT NULL, 
    identity BLOB NOT NULL, 
    level INTEGER NOT NULL, 
    messages BIGINT NOT NULL, 
    sums BLOB NOT NULL, 
    PRIMARY KEY (campaign, first, width, identity)
)
 WITHOUT ROWID;
CREATE TABLE receipts (
    campaign TEXT NOT NULL, 
    "key" BLOB NOT NULL, 
    messages BIGINT NOT NULL, 
    PRIMARY KEY (campaign, "key")
)
 WITHOUT ROWID;
CREATE TABLE seen (
    campaign TEXT NOT NULL, 
    batch BLOB NOT NULL, 
    digests BLOB NOT NULL, 
    PRIMARY KEY (campaign, batch)
)
 WITHOUT ROWID;
CREATE TABLE settings (
    name TEXT NOT NULL, 
    value BLOB NOT NULL, 
    PRIMARY KEY (name)
)
 WITHOUT ROWID;
CREATE TABLE tokens (
    campaign TEXT NOT NULL, 
    digest BLOB NOT NULL, 
    PRIMARY KEY (campaign, digest)
)
 WITHOUT ROWID;
CREATE TABLE uploads (
    campaign TEXT NOT NULL, 
    "key" BLOB NOT NULL, 
    messages BIGINT NOT NULL, 
    body BLOB NOT NULL, 
    PRIMARY KEY (campaign, "key")
)
 WITHOUT ROWID;
