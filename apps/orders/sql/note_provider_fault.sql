-- Count one more consecutive fault. From fault %(faults_max)s on, each fault pauses the provider, twice as long as the
-- one before. Faults during a pause, from calls that began earlier, do not count. Faults far apart are not consecutive.
INSERT INTO orders_providerstanding AS standing (provider, faults_count, changed_at, rests_until)
VALUES (
    %(provider)s,
    1,
    clock_timestamp(),
    CASE WHEN %(faults_max)s <= 1 THEN clock_timestamp() + %(rest_seconds)s * interval '1 second' END
)
ON CONFLICT (provider) DO UPDATE
SET faults_count = CASE
        WHEN standing.rests_until IS NULL
             AND standing.changed_at < clock_timestamp() - %(row_seconds)s * interval '1 second' THEN 1
        ELSE least(standing.faults_count + 1, 32000)
    END,
    changed_at = clock_timestamp(),
    tried_until = NULL,
    rests_until = CASE
        WHEN standing.rests_until IS NULL
             AND standing.changed_at < clock_timestamp() - %(row_seconds)s * interval '1 second'
             AND %(faults_max)s > 1 THEN NULL
        WHEN standing.faults_count + 1 >= %(faults_max)s THEN clock_timestamp() + interval '1 second' * least(
            %(rest_seconds)s * 2 ^ least(standing.faults_count + 1 - %(faults_max)s, 16),
            %(rest_seconds_max)s
        )
        ELSE standing.rests_until
    END
WHERE standing.rests_until IS NULL OR standing.rests_until <= clock_timestamp()
