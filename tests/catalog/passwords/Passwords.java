import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.security.PasswordEncoder;

/**
 * Runs Kafka's own password encoder over a file of orders, one a line, and prints Kafka's version and then one answer a line.
 * The fields of an order are parted by tabs: "encode" or "decode", the secret, the key factory (empty for Kafka's choice), the
 * cipher, the key length, the iterations, and the password or the stored value. An answer is "ok" and the stored value or the
 * password, or "refused". Secrets, passwords and stored values are in base64 of UTF-8.
 */
public class Passwords {
    public static void main(String[] arguments) throws IOException {
        System.out.println(AppInfoParser.getVersion());
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println(answer(line.split("\t", -1)));
        }
    }

    private static String answer(String[] order) {
        PasswordEncoder encoder = PasswordEncoder.encrypting(
                new Password(text(order[1])),
                order[2].isEmpty() ? null : order[2],
                order[3],
                Integer.parseInt(order[4]),
                Integer.parseInt(order[5]));
        try {
            String value = text(order[6]);
            String result = order[0].equals("encode") ? encoder.encode(new Password(value)) : encoder.decode(value).value();
            return "ok\t" + Base64.getEncoder().encodeToString(result.getBytes(StandardCharsets.UTF_8));
        } catch (Exception error) {
            return "refused";
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}
