WITH keys AS (
  SELECT unnest(
    ['producer_byte_rate', 'consumer_byte_rate', 'request_percentage', 'controller_mutation_rate']) AS config_key
),
winners AS (
  SELECT candidates.entity_id, config_key, min(level) AS level
  FROM candidates JOIN quota_values USING (source)
  GROUP BY ALL
),
clients AS (
  SELECT
    all_clients.entity_id, keys.config_key, winners.level, candidates.source, candidates.budget, quota_values.stored,
    -- Rates of bytes are LONGs, the others DOUBLEs, of which brokers can read what Java can.
    CASE
      WHEN keys.config_key LIKE '%_byte_rate' AND regexp_full_match(stored, '[+]?[0-9]{1,19}')
        THEN try_cast(try_cast(stored AS BIGINT) AS DOUBLE)
      WHEN keys.config_key NOT LIKE '%_byte_rate' THEN try_cast(trim(stored) AS DOUBLE)
    END AS value
  FROM (SELECT DISTINCT entity_id FROM standing) all_clients
  CROSS JOIN keys
  LEFT JOIN winners ON winners.entity_id = all_clients.entity_id AND winners.config_key = keys.config_key
  LEFT JOIN candidates ON candidates.entity_id = all_clients.entity_id AND candidates.level = winners.level
  LEFT JOIN quota_values ON quota_values.source = candidates.source AND quota_values.config_key = keys.config_key
),
readable AS (
  SELECT * REPLACE (CASE WHEN value >= 0 AND NOT isinf(value) AND NOT isnan(value) THEN value END AS value) FROM clients
),
budgets AS (
  SELECT DISTINCT config_key, source, budget, value FROM readable WHERE value IS NOT NULL
),
sums AS (SELECT config_key, sum(value::VARCHAR::DECIMAL(38, 9))::DOUBLE AS value, count(*) AS budgets FROM budgets GROUP BY config_key),
totals AS (
  SELECT config_key, count(*) AS clients, count(*) FILTER (level IS NULL) AS unlimited,
    count(*) FILTER (level IS NOT NULL AND value IS NULL) AS unreadable
  FROM readable GROUP BY config_key
),
both_kinds AS (
  SELECT config_key, entity_id, value, level, source, budget, 1 AS clients, (level IS NULL)::INT AS unlimited,
    (level IS NOT NULL AND value IS NULL)::INT AS unreadable, (value IS NOT NULL)::INT AS budgets
  FROM readable
  UNION ALL
  SELECT config_key, '', coalesce(sums.value, 0), NULL, NULL, NULL, clients, unlimited, unreadable,
    coalesce(sums.budgets, 0)
  FROM totals LEFT JOIN sums USING (config_key)
)
SELECT both_kinds.*, capacity, CASE WHEN capacity > 0 THEN value / capacity END AS share
FROM both_kinds LEFT JOIN capacities USING (config_key)
