import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The example's settings that follow a cluster of a service, its one argument, behind JSON lines as those of Admin.java. */
public final class Followers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long LIMIT_S = 120;

    private final String cluster;
    private final Map<String, DynamicConfigs> followers = new HashMap<>();

    private Followers(String cluster) {
        this.cluster = cluster;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // nothing else may come between the answers
        Followers followers = new Followers(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                answer.set("result", JSON.valueToTree(followers.call(request.get("call").asText(), request.get("arguments"))));
            } catch (Exception | AssertionError | LinkageError fault) {
                answer.put("fault", fault.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private Object call(String call, JsonNode given) throws Exception {
        return switch (call) {
            case "follow" -> follow(given.get("user").asText(), given);
            case "settings" -> followers.get(given.get("user").asText()).settings();
            case "send" -> sent(texts(given.get("settings")), given.get("topic").asText());
            case "runs" -> runs(given.get("user").asText());
            case "stay" -> stays(texts(given.get("settings")), given.get("topic").asText());
            case "join" -> joined(texts(given.get("settings")), given.get("topic").asText());
            default -> throw new IllegalArgumentException(call);
        };
    }

    private Map<String, String> follow(String user, JsonNode given) {
        DynamicConfigs.Kind kind = DynamicConfigs.Kind.valueOf(given.get("kind").asText());
        String token = given.get("token").asText();
        String at = given.has("cluster") ? given.get("cluster").asText() : cluster;
        followers.put(user, new DynamicConfigs(kind, texts(given.get("own")), at, token, user));
        return followers.get(user).settings();
    }

    private boolean runs(String user) {
        followers.get(user).runs(followers.get(user).settings());
        return true;
    }

    /** Joins a group, and stays until the process ends. */
    private static boolean stays(Map<String, String> settings, String topic) throws InterruptedException {
        CountDownLatch assigned = new CountDownLatch(1);
        Thread polling = new Thread(() -> {
            var consumer =
                    new KafkaConsumer<>(new HashMap<>(settings), new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic));
            while (true) {
                consumer.poll(Duration.ofMillis(100));
                if (!consumer.assignment().isEmpty()) {
                    assigned.countDown();
                }
            }
        });
        polling.setDaemon(true);
        polling.start();
        return assigned.await(LIMIT_S, TimeUnit.SECONDS);
    }

    /** Sends a record, and returns its offset; null where the broker never answers, as to acks=0. */
    private static Long sent(Map<String, String> settings, String topic) throws Exception {
        Map<String, Object> given = new HashMap<>(settings);
        try (var producer = new KafkaProducer<>(given, new StringSerializer(), new StringSerializer())) {
            RecordMetadata record = producer.send(new ProducerRecord<>(topic, "key", "value")).get(LIMIT_S, TimeUnit.SECONDS);
            return record.hasOffset() ? record.offset() : null;
        }
    }

    /** Joins a group as its only member, and leaves it. */
    private static boolean joined(Map<String, String> settings, String topic) {
        try (var consumer =
                new KafkaConsumer<>(new HashMap<>(settings), new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
            while (consumer.assignment().isEmpty() && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(100));
            }
            return !consumer.assignment().isEmpty();
        }
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> found = new TreeMap<>();
        object.fields().forEachRemaining(field -> found.put(field.getKey(), field.getValue().asText()));
        return found;
    }
}
