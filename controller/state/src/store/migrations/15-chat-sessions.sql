-- Sessions of chats: the turns of one end user's conversation with one agent, and the workspace that the next one begins with.
-- The agent; null for a turn without a session.
ALTER TABLE chats ADD COLUMN session_agent TEXT;
-- Turn before this one.
ALTER TABLE chats ADD COLUMN previous TEXT;
-- Attempt whose workspace the next turn begins with, and its bytes: of one turn of a session at most.
ALTER TABLE chats ADD COLUMN kept_attempt INTEGER;
ALTER TABLE chats ADD COLUMN kept_bytes INTEGER CHECK ((kept_bytes IS NULL) = (kept_attempt IS NULL));
CREATE INDEX chats_of_session ON chats (principal, session_id, created_us) WHERE session_agent IS NOT NULL;
CREATE INDEX chats_with_workspace ON chats (principal) WHERE kept_bytes IS NOT NULL;
