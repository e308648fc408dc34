-- What is set: one row per entry and quota of clients.
SELECT entity_id AS source, entry.key AS config_key, entry.value AS stored
FROM (
  SELECT entity_id, unnest(map_entries(config)) AS entry
  FROM znodes
  WHERE tree = '/config' AND NOT undecodable AND NOT forbidden AND (
    entity_id LIKE 'user=%' OR entity_id = 'user' OR entity_id LIKE 'user,%'
    OR entity_id LIKE 'client-id=%' OR entity_id = 'client-id')
)
WHERE entry.value IS NOT NULL
  AND entry.key IN ('producer_byte_rate', 'consumer_byte_rate', 'request_percentage', 'controller_mutation_rate')
