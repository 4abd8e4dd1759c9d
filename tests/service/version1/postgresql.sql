CREATE TABLE arrivals (
    campaign TEXT NOT NULL, 
    hour BIGINT NOT NULL, 
    messages BIGINT NOT NULL, 
    PRIMARY KEY (campaign, hour)
);
CREATE TABLE batches (
    campaign TEXT NOT NULL, 
    batch BYTEA NOT NULL, 
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
);
CREATE TABLE campaigns (
    name TEXT NOT NULL, 
    mechanism TEXT NOT NULL, 
    terms TEXT NOT NULL, 
    closed BOOLEAN NOT NULL, 
    last_hour BIGINT, 
    issued BIGINT NOT NULL, 
    PRIMARY KEY (name)
);
CREATE TABLE envelopes (
    campaign TEXT NOT NULL, 
    batch BYTEA NOT NULL, 
    part INTEGER NOT NULL, 
    count BIGINT NOT NULL, 
    body BYTEA NOT NULL, 
    PRIMARY KEY (campaign, batch, part)
);
CREATE TABLE estimates (
    campaign TEXT NOT NULL, 
    messages BIGINT NOT NULL, 
    result BYTEA NOT NULL, 
    PRIMARY KEY (campaign)
);
CREATE TABLE history (
    campaign TEXT NOT NULL, 
    messages BIGINT NOT NULL, 
    error DOUBLE PRECISION NOT NULL, 
    PRIMARY KEY (campaign, messages)
);
CREATE TABLE outgoing (
    campaign TEXT NOT NULL, 
    batch BYTEA NOT NULL, 
    part INTEGER NOT NULL, 
    slot INTEGER NOT NULL, 
    sealing_key TEXT NOT NULL, 
    size BIGINT NOT NULL, 
    parts INTEGER NOT NULL, 
    count BIGINT NOT NULL, 
    body BYTEA NOT NULL, 
    PRIMARY KEY (campaign, batch, part)
);
CREATE TABLE pieces (
    campaign TEXT NOT NULL, 
    first BIGINT NOT NULL, 
    width BIGINT NOT NULL, 
    identity BYTEA NOT NULL, 
    level INTEGER NOT NULL, 
    messages BIGINT NOT NULL, 
    sums BYTEA NOT NULL, 
    PRIMARY KEY (campaign, first, width, identity)
);
CREATE TABLE receipts (
    campaign TEXT NOT NULL, 
    key BYTEA NOT NULL, 
    messages BIGINT NOT NULL, 
    PRIMARY KEY (campaign, key)
);
CREATE TABLE seen (
    campaign TEXT NOT NULL, 
    batch BYTEA NOT NULL, 
    digests BYTEA NOT NULL, 
    PRIMARY KEY (campaign, batch)
);
CREATE TABLE settings (
    name TEXT NOT NULL, 
    value BYTEA NOT NULL, 
    PRIMARY KEY (name)
);
CREATE TABLE tokens (
    campaign TEXT NOT NULL, 
    digest BYTEA NOT NULL, 
    PRIMARY KEY (campaign, digest)
);
CREATE TABLE uploads (
    campaign TEXT NOT NULL, 
    key BYTEA NOT NULL, 
    messages BIGINT NOT NULL, 
    body BYTEA NOT NULL, 
    PRIMARY KEY (campaign, key)
);
