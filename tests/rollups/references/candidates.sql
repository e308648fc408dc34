-- For each registered client, the entries that can decide its quotas (KIP-55, KIP-546), the first one first. Those that
-- need the name of a client-id are not there for a client without one.
WITH clients AS (
  SELECT DISTINCT entity_id, split_part(entity_id, ',', 1) AS u, nullif(split_part(entity_id, ',', 2), '') AS c
  FROM standing
)
SELECT entity_id, u, c, 1 AS level, u || ',' || c AS source, entity_id AS budget FROM clients WHERE c IS NOT NULL
UNION ALL SELECT entity_id, u, c, 2, u || ',client-id', entity_id FROM clients
UNION ALL SELECT entity_id, u, c, 3, u, u FROM clients
UNION ALL SELECT entity_id, u, c, 4, 'user,' || c, entity_id FROM clients WHERE c IS NOT NULL
UNION ALL SELECT entity_id, u, c, 5, 'user,client-id', entity_id FROM clients
UNION ALL SELECT entity_id, u, c, 6, 'user', u FROM clients
UNION ALL SELECT entity_id, u, c, 7, c, c FROM clients WHERE c IS NOT NULL
UNION ALL SELECT entity_id, u, c, 8, 'client-id', coalesce(c, entity_id) FROM clients
