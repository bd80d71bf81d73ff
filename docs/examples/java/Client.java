import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Sends payments with idempotency keys, and retries each until there is a response.
 *
 * <pre>java Client.java http://127.0.0.1:8080/payments '{"amount": 10}'</pre>
 */
public class Client {
    static final int ATTEMPTS = 10;
    static final double BUDGET = 60; // seconds
    static final long TIMEOUT = 10; // seconds that an attempt may take

    /** Returns the response, or throws the last attempt's exception. */
    static HttpResponse<String> send(HttpClient client, URI url, String body, String key)
            throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(url)
                .header("Idempotency-Key", key)
                .header("Content-Type", "application/json")
                .POST(BodyPublishers.ofString(body))
                .build();
        long began = System.nanoTime();
        for (int attempt = 1; ; attempt++) {
            HttpResponse<String> response = null;
            IOException failure = null;
            // The timeout of a request would end with the header of its response.
            var exchange = client.sendAsync(request, BodyHandlers.ofString());
            try {
                response = exchange.get(TIMEOUT, TimeUnit.SECONDS);
                if (!isRetryable(response)) {
                    return response;
                }
            } catch (ExecutionException e) { // a broken connection, a truncated response
                failure = new IOException(e.getCause());
            } catch (TimeoutException e) {
                exchange.cancel(true);
                failure = new IOException("no response within " + TIMEOUT + " s", e);
            }
            double wait = pause(response, attempt);
            if (attempt == ATTEMPTS || (System.nanoTime() - began) / 1e9 + wait > BUDGET) {
                if (failure != null) {
                    throw failure;
                }
                return response;
            }
            Thread.sleep((long) (1000 * wait));
        }
    }

    static boolean isRetryable(HttpResponse<String> response) {
        if (header(response, "Idempotency-Replayed").equals("true")) {
            return false; // every retry would get this response
        }
        return switch (response.statusCode()) {
            case 425, 429, 502, 503, 504 -> true;
            case 409 -> !header(response, "Retry-After").isEmpty();
            default -> false;
        };
    }

    /** Returns how many seconds to wait before the next attempt. */
    static double pause(HttpResponse<String> response, int attempt) {
        var random = ThreadLocalRandom.current();
        String asked = header(response, "Retry-After");
        double seconds;
        if (asked.matches("[0-9]+")) {
            seconds = Double.parseDouble(asked);
        } else if (parse(asked) != null) {
            Instant now = parse(header(response, "Date")); // by the server's own clock
            seconds = parse(asked).getEpochSecond() - (now != null ? now : Instant.now()).getEpochSecond();
        } else {
            return random.nextDouble() * Math.min(5, 0.1 * Math.pow(2, attempt));
        }
        return Math.max(0, seconds) * (1 + random.nextDouble() / 10);
    }

    static String header(HttpResponse<String> response, String name) {
        return response == null ? "" : response.headers().firstValue(name).orElse("");
    }

    static Instant parse(String date) {
        try {
            return Instant.from(DateTimeFormatter.RFC_1123_DATE_TIME.parse(date));
        } catch (DateTimeException e) {
            return null;
        }
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        HttpClient client = HttpClient.newHttpClient();
        for (String payment : Arrays.asList(args).subList(1, args.length)) {
            String key = UUID.randomUUID().toString(); // store it with the payment if the payment must survive a crash
            HttpResponse<String> response = send(client, URI.create(args[0]), payment, key);
            System.out.println(response.statusCode() + " " + response.body());
        }
    }
}
