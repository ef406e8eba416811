export default function Page() {
  return <p>Telemetry is posted to /telemetry.</p>
}
