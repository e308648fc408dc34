WITH keys AS (
  SELECT unnest(
    ['producer_byte_rate', 'consumer_byte_rate', 'request_percentage', 'controller_mutation_rate']) AS config_key
),
-- Client quotas. A default affects who falls under it and has nothing set at a level before.
quota_defaults AS (
  SELECT unnest(['user', 'client-id', 'user,client-id']) AS default_id, config_key FROM keys
  UNION
  SELECT source, config_key FROM quota_values
  WHERE (source LIKE 'user=%,client-id') OR (source LIKE 'user,client-id=%')
),
quota_winners AS (
  SELECT candidates.entity_id, config_key, min(level) AS level
  FROM candidates JOIN quota_values USING (source)
  GROUP BY ALL
),
quota_clients AS (
  SELECT default_id, quota_defaults.config_key, candidates.entity_id,
    coalesce(quota_winners.level, 99) >= candidates.level AS affected, FALSE AS ignored
  FROM quota_defaults
  JOIN candidates ON candidates.source = quota_defaults.default_id
  LEFT JOIN quota_winners
    ON quota_winners.entity_id = candidates.entity_id AND quota_winners.config_key = quota_defaults.config_key
),
-- Client configs. An entry of a user is the default of that user's client-ids.
settings AS (
  SELECT entity_id, entry.key AS config_key, entry.value AS value
  FROM (
    SELECT tree, entity_id, unnest(map_entries(config)) AS entry FROM znodes WHERE NOT undecodable AND NOT forbidden)
  WHERE entity_id LIKE 'user=%' AND entry.value IS NOT NULL AND entry.key NOT IN (
    'producer_byte_rate', 'consumer_byte_rate', 'request_percentage', 'controller_mutation_rate',
    'connection_creation_rate', 'SCRAM-SHA-256', 'SCRAM-SHA-512', 'supported.configs')
  -- During a move of the layout to the separate tree.
  QUALIFY tree = max(tree) OVER (PARTITION BY entity_id)
),
config_defaults AS (SELECT * FROM settings WHERE entity_id NOT LIKE '%,%'),
config_clients AS (
  SELECT config_defaults.entity_id AS default_id, config_defaults.config_key, clients.entity_id,
    NOT EXISTS (
      SELECT 1 FROM settings own
      WHERE own.entity_id = clients.entity_id AND own.entity_id LIKE '%,%'
        AND own.config_key = config_defaults.config_key
    ) AS affected,
    NOT EXISTS (
      SELECT 1 FROM standing
      WHERE standing.entity_id = clients.entity_id
        AND list_contains(standing.supported_configs, config_defaults.config_key)
    ) AS ignored
  FROM config_defaults
  JOIN (SELECT DISTINCT entity_id FROM standing) clients
    ON split_part(clients.entity_id, ',', 1) = config_defaults.entity_id
),
-- Brokers with an entry of their own; broker_entries has the entries that they do not ignore.
broker_defaults AS (SELECT config_key, value FROM broker_entries WHERE entity_id = 'broker'),
brokers AS (
  SELECT 'broker' AS default_id, config_key, entity_id,
    NOT EXISTS (
      SELECT 1 FROM broker_entries own
      WHERE own.entity_id = znodes.entity_id AND own.config_key = broker_defaults.config_key
    ) AS affected,
    FALSE AS ignored
  FROM broker_defaults CROSS JOIN znodes
  WHERE tree = '/config' AND entity_id LIKE 'broker=%' AND NOT undecodable AND NOT forbidden
),
listed AS (
  SELECT 'client-quotas' AS facet, default_id, quota_defaults.config_key, stored AS value
  FROM quota_defaults
  LEFT JOIN quota_values ON source = default_id AND quota_values.config_key = quota_defaults.config_key
  UNION ALL SELECT 'client-configs', entity_id, config_key, value FROM config_defaults
  UNION ALL SELECT 'configs', 'broker', config_key, value FROM broker_defaults
),
under AS (
  SELECT 'client-quotas' AS facet, * FROM quota_clients
  UNION ALL SELECT 'client-configs', * FROM config_clients
  UNION ALL SELECT 'configs', * FROM brokers
)
SELECT
  listed.facet, listed.default_id, listed.config_key, listed.value,
  count(*) FILTER (affected) AS affected,
  count(*) FILTER (NOT affected) AS overridden,
  count(*) FILTER (affected AND ignored) AS unsupported,
  coalesce(list(entity_id ORDER BY entity_id) FILTER (affected), [])[:20] AS examples
FROM listed LEFT JOIN under USING (facet, default_id, config_key)
GROUP BY ALL
