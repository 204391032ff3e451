package router

// Tokens a request when no pod has reported any.
const (
	defaultPromptTokens = 10
	defaultOutputTokens = 100
)

func init() { registerMetric("least-latency", tieLast, latencyScores) }

// latencyScores estimates the seconds that a request of average size spends on
// each pod: its queue time, and its mean prefill and decode times scaled from the
// pod's own average size to the average over the pods. All five metrics are
// needed. Queue time is read as a plain value; an engine that exports a histogram
// counts as 0, which is Some(0) here.
func latencyScores(pods []Pod, scores []float64) {
	prompt := meanPositive(pods, defaultPromptTokens, func(m *Metrics) Value { return m.PromptTokens })
	output := meanPositive(pods, defaultOutputTokens, func(m *Metrics) Value { return m.OutputTokens })
	for i := range pods {
		m := &pods[i].Metrics
		scores[i] = m.QueueTime.Or(missing()) +
			scaled(m.PrefillTime, m.PromptTokens, prompt) +
			scaled(m.DecodeTime, m.OutputTokens, output)
	}
}

// scaled is a pod's mean time for its average number of tokens brought to
// another number. A pod whose average is not positive counts as average.
func scaled(mean, tokens Value, to float64) float64 {
	own := tokens.Or(missing())
	if own <= 0 {
		own = to
	}
	return mean.Or(missing()) / own * to
}

// meanPositive is the mean of a metric over the pods where it is above 0, or
// none where it is so nowhere.
func meanPositive(pods []Pod, none float64, metric func(*Metrics) Value) float64 {
	sum, n := 0.0, 0
	for i := range pods {
		if v := metric(&pods[i].Metrics).Or(0); v > 0 {
			sum += v
			n++
		}
	}
	if n == 0 {
		return none
	}
	return sum / float64(n)
}
