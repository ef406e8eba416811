import type { Theme } from 'vitepress'
import DefaultTheme from 'vitepress/theme'
import { defineAsyncComponent } from 'vue'
// oxlint-disable-next-line import/no-unassigned-import -- Vite puts the styles into the page.
import './style.css'

const theme: Theme = {
  extends: DefaultTheme,
  enhanceApp({ app }) {
    app.component(
      'Playground',
      defineAsyncComponent(() => import('../Playground.vue')),
    )
  },
}

export default theme
