import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Settings of one Kafka client that follow its dynamic configs: the contract of docs/clients.md, with the JDK alone.
 *
 * <p>As a program, a producer and a consumer that follow theirs. They send and read a record each tenth of a second,
 * until a line of input, Ctrl-C or SIGTERM. The consumer's group is {@code GROUP}, by default {@code example}:
 *
 * <pre>
 * export CONFPLANE=http://127.0.0.1:8080 TOKEN=... KAFKA=localhost:9092
 * java -cp 'kafka/libs/*' examples/clients/DynamicConfigs.java alice orders
 * </pre>
 */
public final class DynamicConfigs implements AutoCloseable {
    /** The kinds of clients, and the configs that each takes over. */
    public enum Kind {
        PRODUCER("acks"),
        CONSUMER("heartbeat.interval.ms", "session.timeout.ms");

        final List<String> supported;

        Kind(String... supported) {
            this.supported = List.of(supported);
        }
    }

    /** The values that a client takes over, and the reasons against the others. */
    public record Decision(Map<String, String> accepted, Map<String, String> dropped) {}

    private static final String HEARTBEAT = "heartbeat.interval.ms";
    private static final String SESSION = "session.timeout.ms";
    private static final Duration FIRST_FETCH = Duration.ofSeconds(2);
    private static final Duration DAY = Duration.ofDays(1);
    private static final Duration REQUEST = Duration.ofSeconds(30);
    /** A consumer reads nothing while it joins its group, so swaps that follow at once would read nothing at all. */
    private static final Duration REST = Duration.ofSeconds(30);
    private static final double FRESH_REPORT_S = 240;
    private static final int MOST_REFUSED = 32;
    private static final String SOFTWARE = "\"softwareName\": \"apache-kafka-java\", \"softwareVersion\": \""
            + AppInfoParser.getVersion() + "\"";
    private static final String TEXT = "\"((?:[^\"\\\\]|\\\\.)*)\"";
    private static final Pattern PAIR =
            Pattern.compile("\\{\\s*\"key\"\\s*:\\s*" + TEXT + "\\s*,\\s*\"value\"\\s*:\\s*" + TEXT);
    private static final Pattern CODE = Pattern.compile("\"kafkaErrorCode\"\\s*:\\s*(-?\\d+)");

    private final HttpClient http = HttpClient.newBuilder().connectTimeout(FIRST_FETCH).build();
    private final Kind kind;
    private final Map<String, String> own;
    private final String cluster;
    private final String token;
    private final String user;
    private final String instance = UUID.randomUUID().toString();
    private final Thread thread = new Thread(this::follow, "dynamic-configs");
    private volatile Map<String, String> settings;
    private Decision decision = new Decision(Map.of(), Map.of());
    private String etag;
    private long registeredAt;
    private int failures;
    private double pauseS;
    private Map<String, String> running;
    private Map<String, String> refused = Map.of();
    private String revision = "0";
    private String applied = "0";
    private CompletableFuture<Void> reports = CompletableFuture.completedFuture(null);
    private long reportedAt;
    private boolean reportsOff;

    /**
     * Asks once, for two seconds at most, and then follows the changes.
     *
     * @param kind producer or consumer
     * @param own the application's own settings
     * @param cluster the URL of the cluster at the service, as http://127.0.0.1:8080/v1/clusters/default
     * @param token a token of the user
     * @param user the user as whom the client logs in to Kafka
     */
    public DynamicConfigs(Kind kind, Map<String, String> own, String cluster, String token, String user) {
        this.kind = kind;
        this.own = own;
        this.cluster = cluster;
        this.token = token;
        this.user = user;
        this.settings = own.entrySet().stream()
                .filter(entry -> !entry.getKey().equals("enable.dynamic.config"))
                .collect(LinkedHashMap::new, (map, entry) -> map.put(entry.getKey(), entry.getValue()), Map::putAll);
        thread.setDaemon(true);
        if (!enabled(own) || !poll(FIRST_FETCH)) {
            return;
        }
        thread.start();
    }

    /** Returns the settings now in force; the same object until they change. */
    public Map<String, String> settings() {
        return settings;
    }

    /** Says that the application runs with these settings from now on. The service hears of it. */
    public synchronized void runs(Map<String, String> now) {
        running = now;
        report(true);
    }

    @Override
    public void close() {
        thread.interrupt();
    }

    static boolean enabled(Map<String, String> own) {
        return !own.getOrDefault("enable.dynamic.config", "true").trim().equalsIgnoreCase("false");
    }

    static boolean lacking(int status, Integer code) {
        return Set.of(404, 405, 501).contains(status) || code != null && Set.of(35, 42).contains(code);
    }

    static boolean due(boolean changed, Double sinceS) {
        return changed || sinceS == null || sinceS >= FRESH_REPORT_S;
    }

    /** Returns metadata.max.age.ms in seconds; its default if it is no number above 0. */
    static double maxAgeS(Map<String, String> own) {
        String given = own.getOrDefault("metadata.max.age.ms", "").trim();
        return given.matches("0*[1-9]\\d{0,17}") ? Long.parseLong(given) / 1000.0 : 300;
    }

    static double pauseS(double maxAgeS, int failures, Double retryAfterS, double share) {
        if (failures == 0) {
            return maxAgeS * (0.8 + 0.4 * share);
        }
        double backoff = Math.min(maxAgeS, Math.pow(2, failures - 1)) * (0.5 + 0.5 * share);
        double least = retryAfterS == null ? 0 : Math.min(retryAfterS, 3600) * (1 + 0.2 * share);
        return Math.max(backoff, least);
    }

    static Decision decide(Kind kind, Map<String, String> own, Map<String, String> dynamic) {
        Map<String, String> accepted = new TreeMap<>();
        Map<String, String> dropped = new TreeMap<>();
        for (Map.Entry<String, String> entry : dynamic.entrySet()) {
            String key = entry.getKey();
            if (kind.supported.contains(key)) {
                String reason = refusal(own, key, entry.getValue().trim());
                if (reason == null) {
                    accepted.put(key, entry.getValue().trim());
                } else {
                    dropped.put(key, reason);
                }
            } else if (!Kind.PRODUCER.supported.contains(key) && !Kind.CONSUMER.supported.contains(key)) {
                dropped.put(key, "not among the configs that this client takes over");
            }
        }
        if (kind == Kind.CONSUMER && !accepted.isEmpty()) {
            String reason = contradiction(
                    accepted.getOrDefault(HEARTBEAT, own.getOrDefault(HEARTBEAT, "3000")),
                    accepted.getOrDefault(SESSION, own.getOrDefault(SESSION, "45000")));
            if (reason != null) {
                accepted.keySet().forEach(key -> dropped.put(key, reason));
                accepted.clear();
            }
        }
        return new Decision(accepted, dropped);
    }

    private static String contradiction(String heartbeat, String session) {
        try {
            boolean below = Integer.parseInt(heartbeat.trim()) < Integer.parseInt(session.trim());
            return below ? null : HEARTBEAT + " would not be below " + SESSION;
        } catch (NumberFormatException error) {
            return "a timeout of the application's own is no number";
        }
    }

    private static String refusal(Map<String, String> own, String key, String value) {
        if (key.equals("acks")) {
            if (own.getOrDefault("enable.idempotence", "").trim().equalsIgnoreCase("true")) {
                return "the application sets enable.idempotence";
            }
            if (own.containsKey("transactional.id")) {
                return "the application sets transactional.id";
            }
            return Set.of("all", "-1", "0", "1").contains(value) ? null : "must be one of all, -1, 0, 1";
        }
        if (own.getOrDefault("group.protocol", "").trim().equalsIgnoreCase("consumer")) {
            return "the brokers set it for the group, by the group's config consumer." + key;
        }
        try {
            return Integer.parseInt(value) < 1 ? "must be at least 1" : null;
        } catch (NumberFormatException error) {
            return "must be a whole number";
        }
    }

    private void follow() {
        try {
            do {
                Thread.sleep((long) (pauseS * 1000));
            } while (poll(REQUEST));
        } catch (InterruptedException closed) {
            // The values in force stay.
        }
    }

    /** Polls once; returns false where the service lacks the feature. */
    private boolean poll(Duration patience) {
        Double retryAfterS = null;
        try {
            boolean registers = registeredAt == 0 || System.nanoTime() - registeredAt >= DAY.toNanos();
            HttpResponse<String> answer = http.send(
                    request(registers).timeout(patience).build(),
                    HttpResponse.BodyHandlers.ofString(StandardCharsets.UTF_8));
            if (answer.statusCode() == 200) {
                registeredAt = registers ? System.nanoTime() : registeredAt;
                etag = registers ? null : answer.headers().firstValue("ETag").orElse(null);
            } else if (answer.statusCode() != 304) {
                if (lacking(answer)) {
                    System.err.println("the service has no dynamic configs, they are off: " + answer.statusCode());
                    return false;
                }
                retryAfterS = answer.headers().firstValue("Retry-After").filter(text -> text.matches("\\d+"))
                        .map(Double::valueOf).orElse(null);
                throw new IOException("status " + answer.statusCode());
            }
            take(answer);
            failures = 0;
        } catch (IOException error) {
            if (failures++ == 0) {
                System.err.println("dynamic configs can't be read, those in force stay: " + error);
            }
        } catch (InterruptedException closed) {
            Thread.currentThread().interrupt();
        }
        pauseS = pauseS(maxAgeS(own), failures, retryAfterS, ThreadLocalRandom.current().nextDouble());
        return true;
    }

    private HttpRequest.Builder request(boolean registers) {
        if (!registers) {
            HttpRequest.Builder request = to(entity() + "/effective");
            return etag == null ? request : request.header("If-None-Match", etag);
        }
        String clientId = own.get("client.id");
        List<String> components = new ArrayList<>(List.of(component("user", user)));
        if (clientId != null) {
            components.add(component("client-id", clientId));
        }
        String body = "{\"components\": [" + String.join(", ", components) + "], \"resolveEntity\": true, "
                + "\"supportedConfigs\": [\"" + String.join("\", \"", kind.supported) + "\"], "
                + "\"clientInformation\": {" + SOFTWARE + "}}";
        return to("/client-configs:describe")
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body));
    }

    private HttpRequest.Builder to(String path) {
        return HttpRequest.newBuilder(URI.create(cluster + path)).header("Authorization", "Bearer " + token);
    }

    private String entity() {
        String clientId = own.get("client.id");
        return "/client-configs/user=" + escaped(user) + (clientId == null ? "" : ",client-id=" + escaped(clientId));
    }

    private static boolean lacking(HttpResponse<String> answer) {
        Matcher code = CODE.matcher(answer.body());
        return lacking(answer.statusCode(), code.find() ? Integer.valueOf(code.group(1)) : null);
    }

    private synchronized void take(HttpResponse<String> answer) throws IOException {
        Decision found = answer.statusCode() == 304 ? decision : decide(kind, own, pairs(answer.body()));
        revision = answer.headers().firstValue("Confplane-Revision").orElse(revision);
        boolean changed = !found.equals(decision);
        if (changed) {
            System.err.println(kind + ": accepted " + found.accepted() + ", dropped " + found.dropped());
            if (!found.accepted().equals(decision.accepted())) {
                Map<String, String> merged = new LinkedHashMap<>(own);
                merged.remove("enable.dynamic.config");
                merged.putAll(found.accepted());
                settings = merged;
            }
            decision = found;
        }
        report(changed && running == settings);
    }

    /** Reports what the application runs with, one report after the other, if a report is due. */
    private void report(boolean changed) {
        Double sinceS = reportedAt == 0 ? null : (System.nanoTime() - reportedAt) / 1e9;
        if (running == null || reportsOff || !due(changed, sinceS)) {
            return;
        }
        if (running == settings) {
            applied = revision;
            refused = decision.dropped();
        }
        String keys = refused.entrySet().stream().limit(MOST_REFUSED)
                .map(entry -> "{\"key\": " + quoted(entry.getKey()) + ", \"reason\": " + quoted(entry.getValue()) + "}")
                .collect(Collectors.joining(", "));
        String body = "{" + SOFTWARE + ", \"appliedRevision\": \"" + applied + "\", \"refused\": [" + keys + "]}";
        HttpRequest request = to(entity() + "/instances/" + instance).timeout(REQUEST)
                .header("Content-Type", "application/json")
                .PUT(HttpRequest.BodyPublishers.ofString(body)).build();
        reportedAt = System.nanoTime();
        reports = reports.thenCompose(before -> http.sendAsync(request, HttpResponse.BodyHandlers.ofString()))
                .handle(this::reported);
    }

    private synchronized Void reported(HttpResponse<String> answer, Throwable error) {
        if (error == null && answer.statusCode() == 200) {
            return null;
        }
        reportedAt = 0; // the next poll is followed by another
        if (error == null && lacking(answer)) {
            System.err.println("the service takes no reports, they are off: " + answer.statusCode());
            reportsOff = true;
        }
        return null;
    }

    private static Map<String, String> pairs(String body) throws IOException {
        if (!body.contains("\"entries\"") && !body.contains("\"configs\"")) {
            throw new IOException("the answer is not that of a Confplane");
        }
        Map<String, String> found = new TreeMap<>();
        Matcher pair = PAIR.matcher(body);
        while (pair.find()) {
            // Neither the keys nor the values of these configs have characters that JSON escapes.
            found.put(pair.group(1), pair.group(2));
        }
        return found;
    }

    private static String component(String type, String name) {
        return "{\"entityType\": \"" + type + "\", \"matchType\": \"exact\", \"match\": " + quoted(name) + "}";
    }

    private static String quoted(String given) {
        StringBuilder text = new StringBuilder("\"");
        for (char each : given.toCharArray()) {
            text.append(each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
        }
        return text.append('"').toString();
    }

    private static String escaped(String name) {
        StringBuilder text = new StringBuilder();
        for (byte each : name.getBytes(StandardCharsets.UTF_8)) {
            boolean plain = each > 0 && String.valueOf((char) each).matches("[A-Za-z0-9._-]");
            text.append(plain ? String.valueOf((char) each) : String.format("~%02X", each & 0xff));
        }
        return text.toString();
    }

    private static Properties properties(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        return properties;
    }

    private static KafkaProducer<String, String> producer(Map<String, String> settings) {
        return new KafkaProducer<>(properties(settings), new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Map<String, String> settings, String topic) {
        var made = new KafkaConsumer<>(properties(settings), new StringDeserializer(), new StringDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    /** On Ctrl-C and SIGTERM (from container runtimes), ends the loop of the main thread and waits for that thread. */
    private static final class Stop {
        volatile boolean requested;

        Stop() {
            Thread main = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                requested = true;
                try {
                    main.join();
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String user = arguments[0];
        String topic = arguments[1];
        String cluster = System.getenv("CONFPLANE") + "/v1/clusters/default";
        Map<String, String> common = Map.of(
                "bootstrap.servers", System.getenv("KAFKA"), "client.id", "example", "metadata.max.age.ms", "1000");
        Map<String, String> reading = new LinkedHashMap<>(common);
        String group = System.getenv().getOrDefault("GROUP", "example");
        reading.putAll(Map.of("group.id", group, "auto.offset.reset", "earliest"));
        Stop stop = new Stop();
        try (var ofProducer = new DynamicConfigs(Kind.PRODUCER, common, cluster, System.getenv("TOKEN"), user);
                var ofConsumer = new DynamicConfigs(Kind.CONSUMER, reading, cluster, System.getenv("TOKEN"), user)) {
            Map<String, String> produces = ofProducer.settings();
            Map<String, String> consumes = ofConsumer.settings();
            KafkaProducer<String, String> producer = producer(produces);
            KafkaConsumer<String, String> consumer = consumer(consumes, topic);
            ofProducer.runs(produces);
            ofConsumer.runs(consumes);
            long rested = System.nanoTime();
            for (int number = 0; !stop.requested && System.in.available() == 0; number++) {
                if (produces != ofProducer.settings()) {
                    produces = ofProducer.settings();
                    KafkaProducer<String, String> next = producer(produces);
                    producer.close(); // flushes first
                    producer = next;
                    ofProducer.runs(produces);
                }
                producer.send(new ProducerRecord<>(topic, String.valueOf(number), String.valueOf(number)));
                if (consumes != ofConsumer.settings() && System.nanoTime() - rested >= 0) {
                    consumes = ofConsumer.settings();
                    consumer.close(); // commits first
                    consumer = consumer(consumes, topic);
                    rested = System.nanoTime() + REST.toNanos();
                    ofConsumer.runs(consumes);
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("read " + record.value());
                }
                Thread.sleep(100);
            }
            producer.close();
            consumer.close();
        }
    }
}
